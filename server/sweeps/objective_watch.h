// Reads what the job of a trial tells of the sweep's objective, as it arrives.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/base/ids.h"
#include "server/core/sweeping/state.h"
#include "server/store/metrics_store.h"

namespace trainyard::sweeps {

// The watch of one job. It is not thread-safe.
class ObjectiveWatch {
 public:
  // `rungs` are the shares of the whole training at which the trial reports, in ascending order.
  ObjectiveWatch(JobId job, std::vector<double> rungs) : job_(job), rungs_(std::move(rungs)) {}

  // Reads the points that have arrived since the last call. `total_steps` is the length of the
  // whole training, and must not change; while it is not known (0), nothing is read.
  absl::Status Read(store::MetricsStore& metrics, const std::string& objective,
                    int64_t total_steps);
  // Reads the last value of a job that has ended, whatever its length is.
  absl::Status ReadLast(store::MetricsStore& metrics, const std::string& objective);

  // Returns the first value at or behind a rung; nothing while there is none. Rungs at which no
  // value may come any more, since the training is shorter than it seemed, have none.
  std::optional<core::sweeping::Report> At(int32_t rung) const;
  // Returns the value of the greatest step.
  const std::optional<core::sweeping::Report>& last() const { return last_; }
  JobId job() const { return job_; }

 private:
  void Take(const store::MetricPoint& point, int64_t total_steps);

  JobId job_;
  std::vector<double> rungs_;
  std::vector<std::optional<core::sweeping::Report>> at_;
  std::optional<core::sweeping::Report> last_;
  int64_t cursor_ = 0;
};

}  // namespace trainyard::sweeps
