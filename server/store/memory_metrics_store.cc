// Keeps points in maps under one mutex.
#include "server/store/memory_metrics_store.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "server/store/series.h"

namespace trainyard::store {
namespace {

bool IsWanted(const std::string& name, const std::vector<std::string>& names) {
  return names.empty() || std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

absl::StatusOr<int64_t> MemoryMetricsStore::AppendPoints(AttemptId attempt, int32_t rank,
                                                         int64_t offset,
                                                         const std::vector<MetricPoint>& points,
                                                         int64_t end_offset) {
  if (absl::Status status = CheckOffsets(offset, end_offset); !status.ok()) return status;
  const std::lock_guard lock(mutex_);
  int64_t& stands_at = offsets_[{attempt, rank}];
  if (offset != stands_at) {
    return error::OffsetMismatch(MetricStreamName(attempt, rank), offset, stands_at);
  }
  for (const MetricPoint& point : points) {
    points_[attempt.job][++last_cursor_] = {point, attempt.number};
  }
  stands_at = end_offset;
  return end_offset;
}

absl::StatusOr<int64_t> MemoryMetricsStore::ReadOffset(AttemptId attempt, int32_t rank) {
  const std::lock_guard lock(mutex_);
  const auto found = offsets_.find({attempt, rank});
  return found == offsets_.end() ? 0 : found->second;
}

absl::StatusOr<MetricSeries> MemoryMetricsStore::Query(JobId job,
                                                       const std::vector<std::string>& names,
                                                       const PointChoice& choice) {
  const std::lock_guard lock(mutex_);
  MetricSeries series;
  const auto found = points_.find(job);
  if (found == points_.end()) return series;
  for (const auto& [cursor, stored] : found->second) {
    if (IsWanted(stored.point.name, names)) series[stored.point.name].push_back(stored);
  }
  for (auto& [name, points] : series) {
    points = ThinOut(MergeAttempts(std::move(points)), choice);
  }
  return series;
}

absl::StatusOr<int64_t> MemoryMetricsStore::CountPoints(JobId job) {
  const std::lock_guard lock(mutex_);
  const auto found = points_.find(job);
  return found == points_.end() ? 0 : static_cast<int64_t>(found->second.size());
}

absl::StatusOr<int64_t> MemoryMetricsStore::SizeOf(JobId job) {
  const auto points = CountPoints(job);
  if (!points.ok()) return points;
  return *points * static_cast<int64_t>(sizeof(StoredPoint));
}

absl::Status MemoryMetricsStore::DeleteJob(JobId job) {
  const std::lock_guard lock(mutex_);
  points_.erase(job);
  std::erase_if(offsets_, [&](const auto& entry) { return entry.first.first.job == job; });
  return absl::OkStatus();
}

absl::Status MemoryMetricsStore::DeleteAttempt(AttemptId attempt) {
  const std::lock_guard lock(mutex_);
  std::erase_if(points_[attempt.job],
                [&](const auto& entry) { return entry.second.attempt == attempt.number; });
  std::erase_if(offsets_, [&](const auto& entry) { return entry.first.first == attempt; });
  return absl::OkStatus();
}

absl::StatusOr<std::vector<AttemptId>> MemoryMetricsStore::ListAttempts() {
  const std::lock_guard lock(mutex_);
  std::vector<AttemptId> attempts;
  for (const auto& [stream, offset] : offsets_) {
    if (attempts.empty() || attempts.back() != stream.first) attempts.push_back(stream.first);
  }
  return attempts;
}

absl::StatusOr<MetricPage> MemoryMetricsStore::ReadAfter(JobId job,
                                                         const std::vector<std::string>& names,
                                                         int64_t cursor, int64_t limit) {
  const std::lock_guard lock(mutex_);
  MetricPage page;
  page.cursor = cursor;
  const auto found = points_.find(job);
  if (found == points_.end()) return page;
  for (auto it = found->second.upper_bound(cursor); it != found->second.end(); ++it) {
    if (static_cast<int64_t>(page.points.size()) >= std::min(limit, kMetricPageMax)) break;
    if (!IsWanted(it->second.point.name, names)) continue;
    page.points.push_back(it->second);
    page.cursor = it->first;
  }
  return page;
}

}  // namespace trainyard::store
