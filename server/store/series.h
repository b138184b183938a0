// Contains what all metrics stores share: the points of several attempts become one series.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
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

// Keeps at most `max_points`, chosen evenly, or all if it is 0.
std::vector<StoredPoint> ThinOut(std::vector<StoredPoint> points, int64_t max_points);

// Returns a name such as "jobs/1/attempts/2 rank 0 metrics".
std::string MetricStreamName(AttemptId attempt, int32_t rank);

// Returns INVALID_ARGUMENT if a chunk ends before it starts, or starts before 0.
absl::Status CheckOffsets(int64_t offset, int64_t end_offset);

}  // namespace trainyard::store
