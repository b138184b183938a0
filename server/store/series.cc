// Joins what the attempts of a job wrote of one metric.
#include "server/store/series.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "absl/strings/str_cat.h"

namespace trainyard::store {

bool operator==(const MetricPoint& a, const MetricPoint& b) {
  return a.step == b.step && a.name == b.name && a.time_us == b.time_us &&
         (a.value == b.value || (std::isnan(a.value) && std::isnan(b.value)));
}

std::vector<StoredPoint> MergeAttempts(std::vector<StoredPoint> points) {
  std::map<int32_t, int64_t> first_steps;  // by attempt
  for (const StoredPoint& stored : points) {
    const auto [it, is_new] = first_steps.emplace(stored.attempt, stored.point.step);
    if (!is_new) it->second = std::min(it->second, stored.point.step);
  }
  // Each attempt is cut off at the first step of any newer one.
  std::map<int32_t, int64_t> cuts;
  int64_t cut = std::numeric_limits<int64_t>::max();
  for (auto it = first_steps.rbegin(); it != first_steps.rend(); ++it) {
    cuts[it->first] = cut;
    cut = std::min(cut, it->second);
  }
  std::vector<StoredPoint> merged;
  merged.reserve(points.size());
  for (StoredPoint& stored : points) {
    if (stored.point.step < cuts.at(stored.attempt)) merged.push_back(std::move(stored));
  }
  std::stable_sort(merged.begin(), merged.end(), [](const StoredPoint& a, const StoredPoint& b) {
    return a.point.step < b.point.step;
  });
  // If several points have the same step, the last one is kept.
  size_t size = 0;
  for (size_t i = 0; i < merged.size(); ++i) {
    if (size > 0 && merged[size - 1].point.step == merged[i].point.step) --size;
    if (size != i) merged[size] = std::move(merged[i]);
    ++size;
  }
  merged.resize(size);
  return merged;
}

size_t ChosenIndex(size_t i, size_t count, size_t size) {
  return count <= 1 ? size - 1 : i * (size - 1) / (count - 1);
}

std::vector<StoredPoint> ThinOut(std::vector<StoredPoint> points, int64_t max_points) {
  const auto count = static_cast<size_t>(max_points);
  if (count == 0 || points.size() <= count) return points;
  for (size_t i = 0; i < count; ++i) {
    const size_t chosen = ChosenIndex(i, count, points.size());
    if (chosen != i) points[i] = std::move(points[chosen]);
  }
  points.resize(count);
  return points;
}

std::string MetricStreamName(AttemptId attempt, int32_t rank) {
  if (rank >= 0) return absl::StrCat(AttemptName(attempt), " rank ", rank, " metrics");
  return absl::StrCat(AttemptName(attempt), " rank ", DeviceStreamOf(rank), " device metrics");
}

absl::Status CheckOffsets(int64_t offset, int64_t end_offset) {
  if (offset >= 0 && end_offset >= offset) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a chunk from offset ", offset, " to ", end_offset,
                                                 "; expected 0 <= offset <= end_offset"));
}

}  // namespace trainyard::store
