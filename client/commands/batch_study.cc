// Compares the trainings of a study with perfect scaling from the smallest batch that has reached
// the target.
#include "client/commands/batch_study.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/output/metric_direction.h"
#include "client/output/text.h"

namespace trainyard::commands {
namespace {

// The chosen target is this share less good than what the worst training has reached, so that
// the last evaluation alone does not decide.
constexpr double kTargetMargin = 0.01;

const std::vector<StudyPoint>* StudyPointsOf(const StudyRun& run, const std::string& metric) {
  const auto found = run.series.find(metric);
  return found == run.series.end() || found->second.empty() ? nullptr : &found->second;
}

std::optional<double> BestOfRun(const StudyRun& run, const std::string& metric) {
  const std::vector<StudyPoint>* points = StudyPointsOf(run, metric);
  if (points == nullptr) return std::nullopt;
  const bool is_larger_better = output::IsLargerBetter(metric);
  std::optional<double> best;
  for (const StudyPoint& point : *points) {
    if (!std::isfinite(point.value)) continue;
    const bool is_better =
        !best.has_value() || (is_larger_better ? point.value > *best : point.value < *best);
    if (is_better) best = point.value;
  }
  return best;
}

std::optional<double> SpeedOfRun(const StudyRun& run) {
  const std::vector<StudyPoint>* points = StudyPointsOf(run, "samples_per_s");
  if (points != nullptr) {
    std::vector<double> speeds;
    for (const StudyPoint& point : *points) {
      if (std::isfinite(point.value)) speeds.push_back(point.value);
    }
    if (!speeds.empty()) {
      const auto middle = speeds.begin() + static_cast<ptrdiff_t>(speeds.size() / 2);
      std::nth_element(speeds.begin(), middle, speeds.end());
      return *middle;
    }
  }
  int64_t last = 0;
  for (const auto& [name, all] : run.series) {
    if (!all.empty()) last = std::max(last, all.back().step);
  }
  const auto seconds = StudySeconds(run.series, last);
  if (!seconds.has_value() || *seconds <= 0) return std::nullopt;
  return static_cast<double>(last * run.batch) / *seconds;
}

StudyRow StudyRowOf(StudyRun run, const std::optional<StudyTarget>& target) {
  StudyRow row;
  row.samples_per_s = SpeedOfRun(run);
  if (target.has_value()) {
    row.best = BestOfRun(run, target->metric);
    if (const std::vector<StudyPoint>* points = StudyPointsOf(run, target->metric)) {
      const auto reached =
          std::find_if(points->begin(), points->end(), [&](const StudyPoint& point) {
            return point.step > 0 && target->IsReachedBy(point.value);
          });
      if (reached != points->end()) row.steps = reached->step;
    }
  }
  if (row.steps.has_value()) {
    row.seconds = StudySeconds(run.series, *row.steps);
    if (run.steps_per_epoch > 0) {
      row.epochs = static_cast<double>(*row.steps) / run.steps_per_epoch;
    }
  }
  row.run = std::move(run);
  return row;
}

// Fills in the scaling of the rows of one optimizer, and finds their knee. A training that failed
// before it came to the target says nothing, and is passed over. One that ended without it is
// behind the knee.
void CompareWithPerfect(const std::vector<StudyRow*>& rows) {
  const auto base = std::find_if(rows.begin(), rows.end(),
                                 [](const StudyRow* row) { return row->steps.has_value(); });
  StudyRow* knee = nullptr;
  bool is_before_knee = true;
  int compared = 0;
  for (auto it = base; it != rows.end(); ++it) {
    StudyRow& row = **it;
    if (!row.steps.has_value() && !row.run.failure.empty()) continue;
    ++compared;
    if (!row.steps.has_value()) {
      is_before_knee = false;
      continue;
    }
    row.scaling = static_cast<double>(*(*base)->steps * (*base)->run.batch) /
                  static_cast<double>(*row.steps * row.run.batch);
    is_before_knee = is_before_knee && *row.scaling >= kKneeScaling;
    if (is_before_knee) knee = &row;
  }
  if (compared > 1) knee->is_knee = true;
}

}  // namespace

bool StudyTarget::IsReachedBy(double result) const {
  return output::IsLargerBetter(metric) ? result >= value : result <= value;
}

absl::StatusOr<StudyTarget> ParseStudyTarget(absl::string_view text) {
  const size_t equals = text.find('=');
  StudyTarget target;
  const bool has_form = equals != absl::string_view::npos &&
                        absl::SimpleAtod(text.substr(equals + 1), &target.value) &&
                        std::isfinite(target.value);
  if (has_form) target.metric = std::string(absl::StripAsciiWhitespace(text.substr(0, equals)));
  if (target.metric.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--target '", text,
                     "' is not METRIC=VALUE; write one such as --target test.accuracy=0.9 or "
                     "--target test.loss=0.5"));
  }
  return target;
}

std::optional<StudyTarget> ChooseStudyTarget(const std::vector<StudyRun>& runs) {
  for (const char* metric : {"test.accuracy", "test.loss", "train.loss"}) {
    const bool is_larger_better = output::IsLargerBetter(metric);
    const StudyRun* worst = nullptr;
    double value = 0;
    for (const StudyRun& run : runs) {
      const auto best = run.failure.empty() ? BestOfRun(run, metric) : std::nullopt;
      if (!best.has_value()) continue;
      if (worst != nullptr && (is_larger_better ? *best >= value : *best <= value)) continue;
      worst = &run;
      value = *best;
    }
    if (worst == nullptr) continue;
    // Going away from the better side works for values of either sign.
    const double margin = std::abs(value) * kTargetMargin;
    return StudyTarget{
        metric, is_larger_better ? value - margin : value + margin,
        absl::StrCat("it was chosen so that every training reaches it: the best of ",
                     worst->optimizer, " at batch ", worst->batch, " was ",
                     output::NumberText(value), ", the worst of all; --target chooses another")};
  }
  return std::nullopt;
}

std::vector<std::string> BatchStudy::Optimizers() const {
  std::vector<std::string> names;
  for (const StudyRow& row : rows) {
    const bool is_new = std::find(names.begin(), names.end(), row.run.optimizer) == names.end();
    if (is_new) names.push_back(row.run.optimizer);
  }
  return names;
}

std::vector<const StudyRow*> BatchStudy::RowsOf(absl::string_view optimizer) const {
  std::vector<const StudyRow*> found;
  for (const StudyRow& row : rows) {
    if (row.run.optimizer == optimizer) found.push_back(&row);
  }
  return found;
}

BatchStudy MakeBatchStudy(std::string title, std::vector<StudyRun> runs,
                          std::optional<StudyTarget> target) {
  if (!target.has_value()) target = ChooseStudyTarget(runs);
  BatchStudy study;
  study.title = std::move(title);
  for (StudyRun& run : runs) study.rows.push_back(StudyRowOf(std::move(run), target));
  study.target = std::move(target);
  const std::vector<std::string> order = study.Optimizers();
  const auto place = [&](const StudyRow& row) {
    return std::make_pair(std::find(order.begin(), order.end(), row.run.optimizer), row.run.batch);
  };
  std::stable_sort(study.rows.begin(), study.rows.end(),
                   [&](const StudyRow& a, const StudyRow& b) { return place(a) < place(b); });
  for (const std::string& optimizer : order) {
    std::vector<StudyRow*> rows;
    for (StudyRow& row : study.rows) {
      if (row.run.optimizer == optimizer) rows.push_back(&row);
    }
    CompareWithPerfect(rows);
  }
  return study;
}

std::optional<double> StudySeconds(const StudySeries& series, int64_t step) {
  std::vector<const StudyPoint*> points;
  for (const auto& [name, all] : series) {
    for (const StudyPoint& point : all) {
      if (point.step <= step) points.push_back(&point);
    }
  }
  std::sort(points.begin(), points.end(), [](const StudyPoint* a, const StudyPoint* b) {
    return std::make_pair(a->step, a->seconds) < std::make_pair(b->step, b->seconds);
  });
  double seconds = 0;
  int64_t steps = 0;
  for (size_t i = 1; i < points.size(); ++i) {
    if (points[i]->attempt != points[i - 1]->attempt) continue;
    seconds += std::max(points[i]->seconds - points[i - 1]->seconds, 0.0);
    steps += points[i]->step - points[i - 1]->step;
  }
  if (steps == 0) return std::nullopt;
  return seconds * static_cast<double>(step) / static_cast<double>(steps);
}

}  // namespace trainyard::commands
