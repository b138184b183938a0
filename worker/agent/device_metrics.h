// ranks/<r>/device_metrics.jsonl: what the device of a rank does while the rank runs, beside the
// metrics that the rank writes itself.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "worker/agent/report.h"
#include "worker/run_dir/metrics.h"

namespace trainyard::agent {

// "gpu.power_watts" of rank 0, "gpu.power_watts.rank3" of rank 3: a series belongs to a job, and
// rank 0 keeps its name whatever the size of the gang.
std::string DeviceMetricName(absl::string_view quantity, int rank);

// The points of what is known of the device, and of `xids`, after `step` updates of the rank.
std::vector<run_dir::MetricPoint> DevicePoints(const DeviceUsage& usage,
                                               const std::vector<int64_t>& xids, int rank,
                                               int64_t step, int64_t time_us);

// In one write, so that a reader never sees half a line of a daemon that was killed.
absl::Status AppendDevicePoints(const std::string& path,
                                const std::vector<run_dir::MetricPoint>& points);

}  // namespace trainyard::agent
