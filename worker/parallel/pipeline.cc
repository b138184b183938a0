// Implements the three schedules, and a simulation that predicts the time of a step.
#include "worker/parallel/pipeline.h"

#include <algorithm>
#include <cstddef>

#include "common/base/check.h"

namespace trainyard::parallel {

using Kind = StageAction::Kind;

namespace {

// Returns the number of forwards by which a stage is ahead of its backwards once the pipeline is
// full.
int Ahead(PipelineSchedule schedule, int stages, int stage, int microbatches) {
  switch (schedule) {
    case PipelineSchedule::kSequential:
      return std::min(1, microbatches);
    case PipelineSchedule::kGpipe:
      return microbatches;
    case PipelineSchedule::k1F1B:
      // The last stage turns around at once. Each stage before it fills the time until its first
      // gradient returns.
      return std::min(stages - stage, microbatches);
  }
  return microbatches;
}

// The state of the simulated step.
class Simulation {
 public:
  Simulation(PipelineSchedule schedule, absl::Span<const StageTimes> stages,
             absl::Span<const double> links, int microbatches)
      : stages_(stages),
        links_(links),
        next_(stages.size(), 0),
        free_at_(stages.size(), 0),
        lines_{std::vector<double>(stages.size(), 0), std::vector<double>(stages.size(), 0)} {
    const int count = static_cast<int>(stages.size());
    for (int s = 0; s < count; ++s) actions_.push_back(ActionsOf(schedule, count, s, microbatches));
    for (auto& arrivals : arrivals_) {
      arrivals.assign(stages.size(),
                      std::vector<double>(static_cast<size_t>(microbatches), kNotThere));
    }
  }

  PipelinePrediction Run() {
    size_t left = 0;
    for (const auto& actions : actions_) left += actions.size();
    while (left > 0) {
      size_t done = 0;
      for (size_t s = 0; s < stages_.size(); ++s) {
        while (next_[s] < actions_[s].size() && Try(s, actions_[s][next_[s]])) {
          ++next_[s];
          ++done;
        }
      }
      TY_CHECK(done > 0);  // in a possible schedule, stages never wait for each other
      left -= done;
    }
    PipelinePrediction result;
    double busy = 0;
    for (size_t s = 0; s < stages_.size(); ++s) {
      const double each = stages_[s].forward + stages_[s].backward;
      const size_t microbatches = actions_[s].size() / 2;
      result.busy_seconds.push_back(each * static_cast<double>(microbatches));
      busy += result.busy_seconds.back();
      result.step_seconds = std::max(result.step_seconds, free_at_[s]);
    }
    const double devices = static_cast<double>(stages_.size());
    if (result.step_seconds > 0) result.bubble = 1 - busy / (devices * result.step_seconds);
    return result;
  }

 private:
  static constexpr double kNotThere = -1;

  // Runs the action if what it needs has been sent.
  bool Try(size_t stage, const StageAction& action) {
    const bool forward = action.kind == Kind::kForward;
    const auto microbatch = static_cast<size_t>(action.microbatch);
    const bool needs_other = forward ? stage > 0 : stage + 1 < stages_.size();
    const double there = needs_other ? arrivals_[forward ? 0 : 1][stage][microbatch] : 0;
    if (there == kNotThere) return false;
    const StageTimes& times = stages_[stage];
    const double end =
        std::max(free_at_[stage], there) + (forward ? times.forward : times.backward);
    free_at_[stage] = end;
    if (forward && stage + 1 < stages_.size()) Send(0, stage, stage + 1, microbatch, end);
    if (!forward && stage > 0) Send(1, stage - 1, stage - 1, microbatch, end);
    return true;
  }

  void Send(size_t direction, size_t link, size_t to, size_t microbatch, double now) {
    double& line = lines_[direction][link];
    line = std::max(line, now) + (link < links_.size() ? links_[link] : 0);
    arrivals_[direction][to][microbatch] = line;
  }

  const absl::Span<const StageTimes> stages_;
  const absl::Span<const double> links_;
  std::vector<std::vector<StageAction>> actions_;
  std::vector<size_t> next_;                           // by stage
  std::vector<double> free_at_;                        // by stage
  std::vector<double> lines_[2];                       // by link: when it is free
  std::vector<std::vector<double>> arrivals_[2] = {};  // indexed by [stage][microbatch]
};

}  // namespace

std::vector<StageAction> ActionsOf(PipelineSchedule schedule, int stages, int stage,
                                   int microbatches) {
  const int ahead = Ahead(schedule, stages, stage, microbatches);
  std::vector<StageAction> actions;
  actions.reserve(2 * static_cast<size_t>(microbatches));
  for (int m = 0; m < ahead; ++m) actions.push_back({Kind::kForward, m});
  for (int m = 0; m < microbatches; ++m) {
    actions.push_back({Kind::kBackward, m});
    if (m + ahead < microbatches) actions.push_back({Kind::kForward, m + ahead});
  }
  return actions;
}

int PeakSlots(PipelineSchedule schedule, int stages, int stage, int microbatches) {
  return Ahead(schedule, stages, stage, microbatches);
}

PipelinePrediction PredictPipeline(PipelineSchedule schedule, absl::Span<const StageTimes> stages,
                                   absl::Span<const double> links, int microbatches) {
  return Simulation(schedule, stages, links, microbatches).Run();
}

}  // namespace trainyard::parallel
