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

size_t StretchesOf(const PointChoice& choice, size_t size) {
  const auto count = static_cast<size_t>(choice.max_points);
  if (!choice.keeps_extremes || count < 4 || size <= count) return 0;
  return (count - 2) / 2;
}

size_t StretchBegin(size_t i, size_t count, size_t size) {
  return 1 + i * (size - 2) / count;
}

void Extremes::Add(size_t index, double value) {
  if (!least_.has_value()) {
    least_ = greatest_ = index;
    least_value_ = greatest_value_ = value;
    return;
  }
  if (std::isnan(value)) return;
  if (std::isnan(least_value_) || value < least_value_) {
    least_ = index;
    least_value_ = value;
  }
  if (std::isnan(greatest_value_) || value > greatest_value_) {
    greatest_ = index;
    greatest_value_ = value;
  }
}

std::pair<size_t, size_t> Extremes::TwoOf(size_t begin, size_t end) const {
  if (least() != greatest()) return std::minmax({least(), greatest()});
  return least() + 1 == end ? std::pair(begin, least()) : std::pair(least(), end - 1);
}

std::vector<StoredPoint> ThinOut(std::vector<StoredPoint> points, const PointChoice& choice) {
  std::erase_if(points, [&choice](const StoredPoint& stored) {
    return stored.point.step < choice.first_step || stored.point.step > choice.last_step;
  });
  const auto count = static_cast<size_t>(choice.max_points);
  const size_t size = points.size();
  if (count == 0 || size <= count) return points;
  std::vector<size_t> chosen;
  if (const size_t stretches = StretchesOf(choice, size); stretches > 0) {
    chosen.push_back(0);
    for (size_t i = 0; i < stretches; ++i) {
      Extremes extremes;
      const size_t begin = StretchBegin(i, stretches, size);
      const size_t end = StretchBegin(i + 1, stretches, size);
      for (size_t j = begin; j < end; ++j) extremes.Add(j, points[j].point.value);
      const auto [first, second] = extremes.TwoOf(begin, end);
      chosen.push_back(first);
      chosen.push_back(second);
    }
    chosen.push_back(size - 1);
  } else {
    for (size_t i = 0; i < count; ++i) chosen.push_back(ChosenIndex(i, count, size));
  }
  for (size_t i = 0; i < chosen.size(); ++i) {
    if (chosen[i] != i) points[i] = std::move(points[chosen[i]]);
  }
  points.resize(chosen.size());
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
