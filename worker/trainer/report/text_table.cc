#include "worker/trainer/report/text_table.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace trainyard::trainer {
namespace {

// Three digits of a number under a thousand.
std::string ThreeDigits(double value) {
  if (value >= 99.95) return absl::StrFormat("%.0f", value);
  return absl::StrFormat(value >= 9.995 ? "%.1f" : "%.2f", value);
}

}  // namespace

std::string AlignColumns(const std::vector<std::vector<std::string>>& rows,
                         absl::string_view align) {
  std::vector<size_t> widths(align.size(), 0);
  for (const std::vector<std::string>& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const std::vector<std::string>& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - row[i].size(), ' ');
      absl::StrAppend(&line, i == 0 ? "" : "  ", align[i] == 'r' ? padding : "", row[i],
                      align[i] == 'r' ? "" : padding);
    }
    absl::StrAppend(&text, absl::StripTrailingAsciiWhitespace(line), "\n");
  }
  return text;
}

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

}  // namespace trainyard::trainer
