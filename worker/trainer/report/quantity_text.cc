// Rounds to three digits, which is as much as a prediction is good for.
#include "worker/trainer/report/quantity_text.h"

#include <array>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/strings.h"

namespace trainyard::trainer {
namespace {

// Formats three digits of a number under a thousand.
std::string ThreeDigits(double value) {
  const int decimals = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return absl::StrFormat("%.*f", decimals, value);
}

}  // namespace

std::string FormatQuantity(double value) {
  constexpr std::array<const char*, 6> kUnits = {"", " k", " M", " G", " T", " P"};
  size_t unit = 0;
  while (value >= 999.5 && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  if (unit == 0 && value == std::floor(value)) return absl::StrFormat("%.0f", value);
  return absl::StrCat(ThreeDigits(value), kUnits[unit]);
}

std::string FormatSeconds(double seconds) {
  if (seconds >= 1) return absl::StrCat(ThreeDigits(seconds), " s");
  if (seconds >= 1e-3) return absl::StrCat(ThreeDigits(seconds * 1e3), " ms");
  return absl::StrCat(ThreeDigits(seconds * 1e6), " us");
}

std::string Counted(int64_t count, absl::string_view noun) {
  return absl::StrCat(FormatCount(count), " ", noun, count == 1 ? "" : "s");
}

}  // namespace trainyard::trainer
