// Compares a job with a second run of it: by the bytes of the last checkpoints if both have the
// same, else by the values of the metrics. It is pure, so every answer can be tested.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "server/verification/run_record.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::verification {

// The relative difference of metrics that is tolerated unless somebody asks for another one.
inline constexpr double kToleranceDefault = 0.01;

// Returns true if the metric says what was computed. Rates, times and use of devices differ from
// run to run.
bool IsCompared(absl::string_view metric);

// Compares the values at the steps that both series have. The result has no points if there are
// none. Equal values are the same number, or both no number.
v1::MetricComparison CompareSeries(const std::string& name, const Series& first,
                                   const Series& second);

// Compares two runs, and sets `result`, `reasons`, `metrics`, `tolerance`, `devices` and
// `worker_version`. The second one must have ended.
v1::Verification Compare(const RunRecord& first, const RunRecord& second, double tolerance);

}  // namespace trainyard::verification
