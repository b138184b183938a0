// Reads and writes spans as people write them in a spec ("1 epoch", "500 steps", "10 min"), and
// durations.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "google/protobuf/duration.pb.h"
#include "trainyard/v1/spec.pb.h"

namespace trainyard::spec {

// Parses "N epochs", "N steps", "auto" or a duration (common/base/duration.h). Returns
// INVALID_ARGUMENT with the value and the accepted forms otherwise.
absl::StatusOr<v1::Interval> ParseInterval(absl::string_view text);

// Returns the text that ParseInterval reads. It is empty for an interval without a span.
std::string IntervalText(const v1::Interval& interval);

// Returns a duration in the largest unit that divides it: "2 h", "90 s", "150 ms". ParseDuration
// can read it back.
std::string PlainDurationText(absl::Duration duration);

// These convert google.protobuf.Duration. Values outside its range become 0 when they are read.
absl::Duration FromProto(const google::protobuf::Duration& duration);
google::protobuf::Duration ToProto(absl::Duration duration);

}  // namespace trainyard::spec
