// Defines the port to the metric points of all jobs. They have a file of their own, so that floods
// of points never delay what must be acknowledged. Each point is stored exactly once, whatever is
// sent again, because points and the offset behind them are written in one transaction.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/ids.h"

namespace trainyard::store {

inline constexpr int64_t kMetricPageMax = 10'000;
// The readers of a store that never wait for one another. A query that has to read much takes a
// processor for as long, so they are not many.
inline constexpr int kMetricReadersMax = 4;

struct MetricPoint {
  int64_t step = 0;  // updates done when it was measured
  std::string name;
  double value = 0;  // may be NaN or infinite
  int64_t time_us = 0;

  // Two NaNs are equal here.
  friend bool operator==(const MetricPoint& a, const MetricPoint& b);
};

struct StoredPoint {
  MetricPoint point;
  int32_t attempt = 0;

  friend bool operator==(const StoredPoint&, const StoredPoint&) = default;
};

struct MetricPage {
  std::vector<StoredPoint> points;  // in order of arrival
  int64_t cursor = 0;               // pass it on to continue after these points
};

// Says which points of a series are wanted.
struct PointChoice {
  // At most so many are chosen; 0 stands for all.
  int64_t max_points = 0;
  // If there are more: chosen evenly, with the first and the last kept, so that two series with the
  // same steps show the same ones. Or, for a plot, the first, the last, and of each of
  // (max_points - 2) / 2 stretches between them two points, with the least and the greatest, so
  // that no peak is lost; if max_points is below 4, they are chosen evenly all the same.
  bool keeps_extremes = false;
  // Only points of these steps.
  int64_t first_step = std::numeric_limits<int64_t>::min();
  int64_t last_step = std::numeric_limits<int64_t>::max();
};

// Maps the name of each metric to its points. Steps ascend, and each step has one point.
using MetricSeries = std::map<std::string, std::vector<StoredPoint>>;

// Returns the number under which the points of a rank's device are kept, beside those of the ranks
// themselves: both streams have offsets, and -1 is the device of rank 0. The function is its own
// inverse.
constexpr int32_t DeviceStreamOf(int32_t rank) {
  return -1 - rank;
}

// A store of metric points. `rank` is a rank, or a result of DeviceStreamOf. Implementations are
// thread-safe.
class MetricsStore {
 public:
  virtual ~MetricsStore() = default;

  // Appends the points of bytes [offset, end_offset) of metrics.jsonl of one rank, and returns
  // `end_offset`. Returns OUT_OF_RANGE (OFFSET_MISMATCH, naming the expected offset) if `offset` is
  // not the offset of the store; nothing is stored then, and the caller decides what to do about
  // bytes that overlap. Returns INVALID_ARGUMENT if end_offset < offset, and DISK_FULL or
  // CORRUPT_FILE if the file fails.
  virtual absl::StatusOr<int64_t> AppendPoints(AttemptId attempt, int32_t rank, int64_t offset,
                                               const std::vector<MetricPoint>& points,
                                               int64_t end_offset) = 0;

  // Returns the offset of the store, which is 0 at first. It waits for appends under way.
  virtual absl::StatusOr<int64_t> ReadOffset(AttemptId attempt, int32_t rank) = 0;

  // Returns the series of a job: those in `names`, or all if it is empty. An attempt that resumes
  // replaces what older attempts wrote from its first step of that metric on. A series without a
  // point that is wanted is empty. The cost grows with the points of these series at most, and not
  // with those of the job.
  virtual absl::StatusOr<MetricSeries> Query(JobId job, const std::vector<std::string>& names,
                                             const PointChoice& choice) = 0;

  // Returns the number of points that are stored for a job. The cost does not grow with it.
  virtual absl::StatusOr<int64_t> CountPoints(JobId job) = 0;
  // Returns the bytes that the points of a job take, about. The cost grows with the number of its
  // chunks and not with their size.
  virtual absl::StatusOr<int64_t> SizeOf(JobId job) = 0;
  // Forgets all points and offsets of a job. It is fine if there are none.
  virtual absl::Status DeleteJob(JobId job) = 0;
  // Forgets all points and offsets of an attempt. It is fine if there are none.
  virtual absl::Status DeleteAttempt(AttemptId attempt) = 0;
  // Returns the attempts that have offsets, in ascending order.
  virtual absl::StatusOr<std::vector<AttemptId>> ListAttempts() = 0;

  // Returns points of a job that arrived after `cursor` (0 means from the start), at most `limit`,
  // which is cut to kMetricPageMax: those of the series in `names`, or all if it is empty. An empty
  // page has the cursor that was given.
  virtual absl::StatusOr<MetricPage> ReadAfter(JobId job, const std::vector<std::string>& names,
                                               int64_t cursor, int64_t limit) = 0;
};

}  // namespace trainyard::store
