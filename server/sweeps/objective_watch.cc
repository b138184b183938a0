// Finds the values at the rungs among the points of a metric.
#include "server/sweeps/objective_watch.h"

#include <cmath>

#include "common/base/status_macros.h"

namespace trainyard::sweeps {
namespace {

// A share such as 1/3 of the steps is no whole number, and its rounding must add no step.
constexpr double kRounding = 1e-9;

}  // namespace

void ObjectiveWatch::Take(const store::MetricPoint& point, int64_t total_steps) {
  const core::sweeping::Report report{point.step, point.value};
  if (!last_.has_value() || point.step >= last_->step) last_ = report;
  at_.resize(rungs_.size());
  for (size_t rung = 0; rung < rungs_.size(); ++rung) {
    const double first = std::ceil(rungs_[rung] * static_cast<double>(total_steps) - kRounding);
    if (static_cast<double>(point.step) < first) break;
    if (!at_[rung].has_value() || point.step < at_[rung]->step) at_[rung] = report;
  }
}

absl::Status ObjectiveWatch::Read(store::MetricsStore& metrics, const std::string& objective,
                                  int64_t total_steps) {
  if (total_steps <= 0) return absl::OkStatus();
  while (true) {
    TY_ASSIGN_OR_RETURN(const store::MetricPage page,
                        metrics.ReadAfter(job_, {objective}, cursor_, store::kMetricPageMax));
    if (page.points.empty()) return absl::OkStatus();
    for (const store::StoredPoint& stored : page.points) Take(stored.point, total_steps);
    cursor_ = page.cursor;
  }
}

absl::Status ObjectiveWatch::ReadLast(store::MetricsStore& metrics, const std::string& objective) {
  TY_ASSIGN_OR_RETURN(const store::MetricSeries series,
                      metrics.Query(job_, {objective}, {.max_points = 2}));
  const auto found = series.find(objective);
  if (found == series.end() || found->second.empty()) return absl::OkStatus();
  const store::MetricPoint& point = found->second.back().point;
  last_ = core::sweeping::Report{point.step, point.value};
  return absl::OkStatus();
}

std::optional<core::sweeping::Report> ObjectiveWatch::At(int32_t rung) const {
  const auto index = static_cast<size_t>(rung);
  return index < at_.size() ? at_[index] : std::nullopt;
}

}  // namespace trainyard::sweeps
