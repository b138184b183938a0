// Writes the metrics of a device beside those of the rank that uses it.
#include "worker/agent/device_metrics.h"

#include <fcntl.h>

#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"

namespace trainyard::agent {

std::string DeviceMetricName(absl::string_view quantity, int rank) {
  return rank == 0 ? absl::StrCat("gpu.", quantity) : absl::StrCat("gpu.", quantity, ".rank", rank);
}

std::vector<run_dir::MetricPoint> DevicePoints(const DeviceUsage& usage,
                                               const std::vector<int64_t>& xids, int rank,
                                               int64_t step, int64_t time_us) {
  std::vector<run_dir::MetricPoint> points;
  const auto add = [&](absl::string_view quantity, const auto& value) {
    if (!value.has_value()) return;
    points.push_back(
        {step, DeviceMetricName(quantity, rank), static_cast<double>(*value), time_us});
  };
  add("utilization", usage.utilization);
  add("memory_utilization", usage.memory_utilization);
  add("memory_bytes", usage.memory_bytes);
  add("power_watts", usage.power_watts);
  add("temperature_celsius", usage.temperature_celsius);
  add("ecc_errors", usage.ecc_errors);
  for (const int64_t xid : xids) add("xid", std::optional<int64_t>(xid));
  return points;
}

absl::Status AppendDevicePoints(const std::string& path,
                                const std::vector<run_dir::MetricPoint>& points) {
  std::string text;
  for (const run_dir::MetricPoint& point : points) run_dir::AppendMetricLine(point, text);
  if (text.empty()) return absl::OkStatus();
  TY_ASSIGN_OR_RETURN(const UniqueFd file, OpenRegularFile(path, O_WRONLY | O_CREAT | O_APPEND));
  return WriteFully(file.get(), text, path);
}

}  // namespace trainyard::agent
