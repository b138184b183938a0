// Parses intervals. An interval is a number and a unit; without a unit its meaning would be a
// guess.
#include "common/spec/interval.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/duration.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"

namespace trainyard::spec {
namespace {

constexpr char kAutomatic[] = "auto";

std::string Counted(int64_t count, absl::string_view unit) {
  return absl::StrCat(count, " ", unit, count == 1 ? "" : "s");
}

}  // namespace

absl::StatusOr<v1::Interval> ParseInterval(absl::string_view text) {
  v1::Interval interval;
  if (absl::StripAsciiWhitespace(text) == kAutomatic) {
    interval.set_automatic(true);
    return interval;
  }
  const auto [number, unit] = SplitQuantity(text);
  const bool is_epochs = unit == "epoch" || unit == "epochs";
  if (is_epochs || unit == "step" || unit == "steps") {
    int64_t count = 0;
    if (!absl::SimpleAtoi(number, &count) || count < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", text, "' is not an interval; expected a whole number of ",
                       is_epochs ? "epochs" : "steps", ", 1 or more"));
    }
    if (is_epochs) {
      interval.set_epochs(count);
    } else {
      interval.set_steps(count);
    }
    return interval;
  }
  const auto duration = ParseDuration(text);
  if (!duration.ok() || *duration <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text,
                     "' is not an interval; write a number and a unit, such as '1 epoch', "
                     "'500 steps' or '10 min', or 'auto'"));
  }
  *interval.mutable_time() = ToProto(*duration);
  return interval;
}

std::string IntervalText(const v1::Interval& interval) {
  switch (interval.span_case()) {
    case v1::Interval::kEpochs:
      return Counted(interval.epochs(), "epoch");
    case v1::Interval::kSteps:
      return Counted(interval.steps(), "step");
    case v1::Interval::kTime:
      return PlainDurationText(FromProto(interval.time()));
    case v1::Interval::kAutomatic:
      return kAutomatic;
    case v1::Interval::SPAN_NOT_SET:
      break;
  }
  return "";
}

std::string PlainDurationText(absl::Duration duration) {
  constexpr std::pair<int64_t, const char*> kUnits[] = {
      {86'400'000, "d"}, {3'600'000, "h"}, {60'000, "min"}, {1000, "s"}};
  const int64_t milliseconds = absl::ToInt64Milliseconds(duration);
  if (absl::Milliseconds(milliseconds) != duration) {
    return absl::StrCat(absl::ToDoubleMilliseconds(duration), " ms");
  }
  if (milliseconds == 0) return "0 s";
  for (const auto& [size, unit] : kUnits) {
    if (milliseconds % size == 0) return absl::StrCat(milliseconds / size, " ", unit);
  }
  return absl::StrCat(milliseconds, " ms");
}

absl::Duration FromProto(const google::protobuf::Duration& duration) {
  // These are the limits that duration.proto states.
  constexpr int64_t kMaxSeconds = 315'576'000'000;
  const bool is_valid = duration.seconds() >= -kMaxSeconds && duration.seconds() <= kMaxSeconds &&
                        duration.nanos() > -1'000'000'000 && duration.nanos() < 1'000'000'000;
  if (!is_valid) return absl::ZeroDuration();
  return absl::Seconds(duration.seconds()) + absl::Nanoseconds(duration.nanos());
}

google::protobuf::Duration ToProto(absl::Duration duration) {
  google::protobuf::Duration proto;
  proto.set_seconds(absl::IDivDuration(duration, absl::Seconds(1), &duration));
  proto.set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(duration)));
  return proto;
}

}  // namespace trainyard::spec
