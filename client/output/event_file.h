// Writes metrics as TensorBoard's event files: records of TFRecord that hold a tensorflow.Event
// with one scalar each.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::output {

// Returns the first record of an event file, which states its version.
std::string EventFileHead(double wall_time_s);
// Returns the record of a point. TensorBoard keeps f32, so the value is rounded.
std::string EventRecord(absl::string_view tag, const v1::MetricPoint& point);

}  // namespace trainyard::output
