// Parses durations. absl::ParseDuration will not do: it knows neither days nor a blank before the
// unit, and accepts a bare 0.
#include "common/base/duration.h"

#include <array>
#include <cmath>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/strings.h"

namespace trainyard {
namespace {

constexpr std::array<std::pair<absl::string_view, int64_t>, 18> kUnitMilliseconds = {{
    {"ms", 1},
    {"millisecond", 1},
    {"milliseconds", 1},
    {"s", 1000},
    {"sec", 1000},
    {"second", 1000},
    {"seconds", 1000},
    {"m", 60'000},
    {"min", 60'000},
    {"minute", 60'000},
    {"minutes", 60'000},
    {"h", 3'600'000},
    {"hour", 3'600'000},
    {"hours", 3'600'000},
    {"d", 86'400'000},
    {"day", 86'400'000},
    {"days", 86'400'000},
    {"w", 604'800'000},
}};

}  // namespace

absl::StatusOr<absl::Duration> ParseDuration(absl::string_view text) {
  const auto [number, unit] = SplitQuantity(text);
  double value = 0;
  if (number.empty() || !absl::SimpleAtod(number, &value) || !std::isfinite(value)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", text, "' is not a duration; write a number and a unit, such as '30 min'"));
  }
  if (unit.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("duration '", text, "' needs a unit: ms, s, min, h or d"));
  }
  for (const auto& [name, milliseconds] : kUnitMilliseconds) {
    if (unit != name) continue;
    const double total = value * static_cast<double>(milliseconds);
    // A hundred years. A longer duration is a mistake.
    if (total > 100.0 * 365 * 86'400'000) {
      return absl::InvalidArgumentError(absl::StrCat("duration '", text, "' is over 100 years"));
    }
    return absl::Microseconds(static_cast<int64_t>(std::llround(total * 1000)));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("duration '", text, "' has the unit '", unit, "'; use ms, s, min, h or d"));
}

std::string DurationText(absl::Duration duration) {
  if (duration < absl::ZeroDuration()) return absl::StrCat("-", DurationText(-duration));
  if (duration == absl::InfiniteDuration()) return "unlimited";
  if (duration < absl::Seconds(1))
    return absl::StrFormat("%dms", absl::ToInt64Milliseconds(duration));
  const int64_t seconds = absl::ToInt64Seconds(duration);
  if (seconds < 60) return absl::StrFormat("%.1fs", absl::ToDoubleSeconds(duration));
  if (seconds < 3600) return absl::StrFormat("%dm %02ds", seconds / 60, seconds % 60);
  if (seconds < 86'400) return absl::StrFormat("%dh %02dm", seconds / 3600, seconds / 60 % 60);
  return absl::StrFormat("%dd %02dh", seconds / 86'400, seconds / 3600 % 24);
}

}  // namespace trainyard
