// The work that all metrics stores share: the points of several attempts become one series.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/store/metrics_store.h"

namespace trainyard::store {

// `points` of one metric in order of arrival; the result has ascending steps, one point a step. An
// attempt goes on from a checkpoint, so from its first step on, what older attempts wrote is
// undone. Where an attempt reports a step twice, the later arrival counts.
std::vector<StoredPoint> MergeAttempts(std::vector<StoredPoint> points);

// "jobs/1/attempts/2 rank 0 metrics".
std::string MetricStreamName(AttemptId attempt, int32_t rank);

// INVALID_ARGUMENT where a chunk ends before it starts, or starts before 0.
absl::Status CheckOffsets(int64_t offset, int64_t end_offset);

}  // namespace trainyard::store
