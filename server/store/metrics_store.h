// Port to the metric points of all jobs. They have a file of their own, so that floods of points
// never delay what must be acknowledged. Each point is stored exactly once, whatever is sent again,
// because points and the offset behind them are one transaction.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/ids.h"

namespace trainyard::store {

inline constexpr int64_t kMetricPageMax = 10'000;

struct MetricPoint {
  int64_t step = 0;  // updates done when it was measured
  std::string name;
  double value = 0;  // may be NaN or infinite
  int64_t time_us = 0;

  // Two NaNs are equal.
  friend bool operator==(const MetricPoint& a, const MetricPoint& b);
};

struct StoredPoint {
  MetricPoint point;
  int32_t attempt = 0;

  friend bool operator==(const StoredPoint&, const StoredPoint&) = default;
};

struct MetricPage {
  std::vector<StoredPoint> points;  // in order of arrival
  int64_t cursor = 0;               // pass it to go on after these
};

// The points of each metric, by its name: steps ascend, and each has one point.
using MetricSeries = std::map<std::string, std::vector<StoredPoint>>;

// The number under which the points of a rank's device are kept, beside those of the ranks
// themselves: both streams have offsets, and -1 is the device of rank 0. The function is its own
// inverse.
constexpr int32_t DeviceStreamOf(int32_t rank) {
  return -1 - rank;
}

// `rank` is a rank, or a DeviceStreamOf one. Thread-safe.
class MetricsStore {
 public:
  virtual ~MetricsStore() = default;

  // Appends the points of bytes [offset, end_offset) of metrics.jsonl of one rank. OUT_OF_RANGE
  // (OFFSET_MISMATCH, naming the expected offset) where `offset` is not where the store stands:
  // nothing is stored. What to do about bytes that overlap is the caller's decision. Answers with
  // `end_offset`. INVALID_ARGUMENT where end_offset < offset. DISK_FULL, CORRUPT_FILE.
  virtual absl::StatusOr<int64_t> AppendPoints(AttemptId attempt, int32_t rank, int64_t offset,
                                               const std::vector<MetricPoint>& points,
                                               int64_t end_offset) = 0;

  // The offset at which the store stands; 0 at first.
  virtual absl::StatusOr<int64_t> ReadOffset(AttemptId attempt, int32_t rank) = 0;

  // The series of a job: of these metrics only, or of all where `names` is empty. An attempt that
  // resumes takes the place of what older ones wrote from its first step of that metric on.
  virtual absl::StatusOr<MetricSeries> Query(JobId job, const std::vector<std::string>& names) = 0;

  // The number of points of a job that are stored.
  virtual absl::StatusOr<int64_t> CountPoints(JobId job) = 0;
  // Forgets all points and offsets of a job. It is fine if there are none.
  virtual absl::Status DeleteJob(JobId job) = 0;
  // The same for one attempt.
  virtual absl::Status DeleteAttempt(AttemptId attempt) = 0;
  // The attempts that have offsets, ascending.
  virtual absl::StatusOr<std::vector<AttemptId>> ListAttempts() = 0;

  // Points of a job that arrived after `cursor` (0: from the start), at most `limit`, which is cut
  // to kMetricPageMax. An empty page answers with the cursor that was given.
  virtual absl::StatusOr<MetricPage> ReadAfter(JobId job, int64_t cursor, int64_t limit) = 0;
};

}  // namespace trainyard::store
