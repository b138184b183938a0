// Keeps metric points in memory. This metrics store is written to be read.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "server/store/metrics_store.h"

namespace trainyard::store {

class MemoryMetricsStore : public MetricsStore {
 public:
  absl::StatusOr<int64_t> AppendPoints(AttemptId attempt, int32_t rank, int64_t offset,
                                       const std::vector<MetricPoint>& points,
                                       int64_t end_offset) override;
  absl::StatusOr<int64_t> ReadOffset(AttemptId attempt, int32_t rank) override;
  absl::StatusOr<MetricSeries> Query(JobId job, const std::vector<std::string>& names,
                                     const PointChoice& choice) override;
  absl::StatusOr<int64_t> CountPoints(JobId job) override;
  absl::StatusOr<int64_t> SizeOf(JobId job) override;
  absl::Status DeleteJob(JobId job) override;
  absl::Status DeleteAttempt(AttemptId attempt) override;
  absl::StatusOr<std::vector<AttemptId>> ListAttempts() override;
  absl::StatusOr<MetricPage> ReadAfter(JobId job, const std::vector<std::string>& names,
                                       int64_t cursor, int64_t limit) override;

 private:
  std::mutex mutex_;
  // The points of each job by their cursors.
  std::map<JobId, std::map<int64_t, StoredPoint>> points_;    // guarded by mutex_
  std::map<std::pair<AttemptId, int32_t>, int64_t> offsets_;  // guarded by mutex_
  int64_t last_cursor_ = 0;                                   // guarded by mutex_
};

}  // namespace trainyard::store
