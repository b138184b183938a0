// Reads and writes ranks/<r>/metrics.jsonl, which has one JSON object a line.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard::run_dir {

// The longest name of a metric, in bytes.
inline constexpr int kMaxMetricName = 200;

// One value of one metric.
struct MetricPoint {
  int64_t step = 0;       // updates done
  std::string name = {};  // "train.loss"
  double value = 0;       // may be NaN or infinite
  int64_t time_us = 0;    // since 1970

  friend bool operator==(const MetricPoint&, const MetricPoint&) = default;
};

// Appends `{"step":12,"name":"train.loss","value":1.7,"time":1790000000000000}\n`. Numbers are the
// shortest that read back as the same double.
void AppendMetricLine(const MetricPoint& point, std::string& text);

// Decodes one line, with or without its newline. Returns DATA_LOSS (CORRUPT_FILE) with `file` and
// the field that is wrong.
absl::StatusOr<MetricPoint> DecodeMetricLine(absl::string_view line, absl::string_view file);

}  // namespace trainyard::run_dir
