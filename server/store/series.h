// Contains what all metrics stores share: the points of several attempts become one series.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "server/store/metrics_store.h"

namespace trainyard::store {

// Joins `points` of one metric, which come in order of arrival. The result has ascending steps, and
// one point for each step. An attempt continues from a checkpoint, so what older attempts wrote
// from its first step on is dropped. If an attempt reports a step twice, the later arrival counts.
std::vector<StoredPoint> MergeAttempts(std::vector<StoredPoint> points);

// Returns which of `size` points is the i-th of `count` that are chosen evenly. The first and the
// last are among them; a single one is the last.
size_t ChosenIndex(size_t i, size_t count, size_t size);

// Returns how many stretches a series of `size` points is divided into if the extremes of each are
// kept, or 0 if the points are all wanted or chosen evenly.
size_t StretchesOf(const PointChoice& choice, size_t size);
// Returns where the i-th of `count` stretches begins; the one behind the last begins at the last
// point, which belongs to none.
size_t StretchBegin(size_t i, size_t count, size_t size);

// Finds the least and the greatest of points that are given one after the other. Values that are no
// numbers are passed over, unless there are no others. Of equal points, the first one counts.
class Extremes {
 public:
  // `index` is what the results are named by.
  void Add(size_t index, double value);
  size_t least() const { return *least_; }
  size_t greatest() const { return *greatest_; }
  // Returns both in their order. If all points of [begin, end) are alike, another one at an end of
  // it takes the second place, so that whoever gets as many points as it has asked for knows that
  // there are more.
  std::pair<size_t, size_t> TwoOf(size_t begin, size_t end) const;

 private:
  std::optional<size_t> least_;
  std::optional<size_t> greatest_;
  double least_value_ = std::numeric_limits<double>::quiet_NaN();
  double greatest_value_ = std::numeric_limits<double>::quiet_NaN();
};

// Keeps the points that are wanted. They have ascending steps.
std::vector<StoredPoint> ThinOut(std::vector<StoredPoint> points, const PointChoice& choice);

// Returns a name such as "jobs/1/attempts/2 rank 0 metrics".
std::string MetricStreamName(AttemptId attempt, int32_t rank);

// Returns INVALID_ARGUMENT if a chunk ends before it starts, or starts before 0.
absl::Status CheckOffsets(int64_t offset, int64_t end_offset);

}  // namespace trainyard::store
