// Reads and writes amounts of memory. People write a size in the largest unit that divides it.
#include "common/spec/byte_size.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/strings.h"

namespace trainyard::spec {
namespace {

// The largest unit comes first, because ByteSizeText takes the first that divides.
constexpr std::pair<absl::string_view, int64_t> kUnits[] = {{"TiB", int64_t{1} << 40},
                                                            {"TB", 1'000'000'000'000},
                                                            {"GiB", int64_t{1} << 30},
                                                            {"GB", 1'000'000'000},
                                                            {"MiB", int64_t{1} << 20},
                                                            {"MB", 1'000'000},
                                                            {"KiB", int64_t{1} << 10},
                                                            {"kB", 1'000},
                                                            {"B", 1}};
// A larger size is a mistake.
constexpr double kBytesMax = 1125899906842624.0;  // 1 PiB

}  // namespace

absl::StatusOr<v1::ByteSize> ParseByteSize(absl::string_view text) {
  const auto [number, unit] = SplitQuantity(text);
  double value = 0;
  if (number.empty() || !absl::SimpleAtod(number, &value) || !std::isfinite(value)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", text, "' is no amount of memory; write a number and a unit, such as '80 GiB'"));
  }
  if (unit.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("memory '", text, "' needs a unit: MiB, GiB, MB or GB"));
  }
  for (const auto& [name, bytes] : kUnits) {
    if (unit != name) continue;
    const double total = value * static_cast<double>(bytes);
    if (total > kBytesMax) {
      return absl::InvalidArgumentError(absl::StrCat("memory '", text, "' is over 1024 TiB"));
    }
    v1::ByteSize size;
    size.set_bytes(std::llround(total));
    return size;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("memory '", text, "' has the unit '", unit, "'; use MiB, GiB, MB or GB"));
}

std::string ByteSizeText(const v1::ByteSize& size) {
  for (const auto& [name, bytes] : kUnits) {
    if (size.bytes() != 0 && size.bytes() % bytes == 0) {
      return absl::StrCat(size.bytes() / bytes, " ", name);
    }
  }
  return "0 B";
}

}  // namespace trainyard::spec
