// Writes ranks/<r>/device_metrics.jsonl, which says what the device of a rank does while the rank
// runs. The rank writes its own metrics itself.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "worker/agent/report.h"
#include "worker/run_dir/metrics.h"

namespace trainyard::agent {

// Returns "gpu.power_watts" for rank 0, and "gpu.power_watts.rank3" for rank 3. A series belongs to
// a job, and rank 0 keeps its name whatever the size of the gang.
std::string DeviceMetricName(absl::string_view quantity, int rank);

// Returns the points of what is known of the device, and of `xids`, after `step` updates of the
// rank.
std::vector<run_dir::MetricPoint> DevicePoints(const DeviceUsage& usage,
                                               const std::vector<int64_t>& xids, int rank,
                                               int64_t step, int64_t time_us);

// Appends the points in one write, so that a reader never sees half a line of a daemon that was
// killed.
absl::Status AppendDevicePoints(const std::string& path,
                                const std::vector<run_dir::MetricPoint>& points);

}  // namespace trainyard::agent
