// Chooses what a sweep leaves open, and makes the specs of its trials.
#include "server/sweeps/plan.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/spec/change.h"

namespace trainyard::sweeps {
namespace {

// The parts into which PBT divides a training if nobody says how many.
constexpr int32_t kGenerationsDefault = 5;
// The longest name of a job.
constexpr size_t kNameBytes = 63;

core::sweeping::Search SearchOf(v1::SweepSearch search) {
  switch (search) {
    case v1::SWEEP_SEARCH_GRID:
      return core::sweeping::Search::kGrid;
    case v1::SWEEP_SEARCH_ASHA:
      return core::sweeping::Search::kAsha;
    case v1::SWEEP_SEARCH_PBT:
      return core::sweeping::Search::kPbt;
    default:
      return core::sweeping::Search::kRandom;
  }
}

}  // namespace

sweep::Space SpaceOf(const v1::SweepSpec& sweep) {
  std::vector<sweep::Space::Mistake> mistakes;
  sweep::Space space =
      sweep::Space::Parse({sweep.parameters().begin(), sweep.parameters().end()}, mistakes);
  return space;
}

void ChooseOpen(int32_t room, v1::SweepSpec& sweep) {
  const sweep::Space space = SpaceOf(sweep);
  int64_t trials = sweep.trials();
  if (sweep.search() == v1::SWEEP_SEARCH_GRID) {
    trials = trials == 0 ? space.grid_size() : std::min(trials, space.grid_size());
  } else if (space.distinct() > 0 && space.distinct() <= sweep::kGridPointsMax) {
    // Further trials would repeat earlier ones.
    trials = std::min(trials, space.distinct());
  }
  sweep.set_trials(static_cast<int32_t>(trials));
  if (sweep.rungs() == 0) {
    sweep.set_rungs(sweep.search() == v1::SWEEP_SEARCH_ASHA
                        ? core::sweeping::DefaultRungs(sweep.trials(), sweep.factor())
                    : sweep.search() == v1::SWEEP_SEARCH_PBT ? kGenerationsDefault
                                                             : 1);
  }
  if (sweep.concurrent() == 0) sweep.set_concurrent(std::max(room, 1));
  sweep.set_concurrent(std::min(sweep.concurrent(), sweep.trials()));
}

core::sweeping::Definition DefinitionOf(const v1::SweepSpec& sweep) {
  core::sweeping::Definition definition;
  definition.search = SearchOf(sweep.search());
  definition.maximize = sweep.has_maximize();
  definition.trials = std::max(sweep.trials(), 1);
  definition.concurrent = std::max(sweep.concurrent(), 1);
  definition.factor = std::max(sweep.factor(), 2);
  definition.rungs = std::max(sweep.rungs(), 1);
  if (sweep.has_target()) definition.target = sweep.target();
  definition.patience = sweep.patience();
  definition.quantile = sweep.quantile();
  if (sweep.has_pause()) definition.pause = sweep.pause();
  return definition;
}

const std::string& ObjectiveOf(const v1::SweepSpec& sweep) {
  return sweep.has_maximize() ? sweep.maximize() : sweep.minimize();
}

sweep::Values ValuesOf(const v1::SweepSpec& sweep, const sweep::Space& space, int32_t trial) {
  return sweep.search() == v1::SWEEP_SEARCH_GRID ? space.GridPoint(trial)
                                                 : space.Draw(sweep.seed(), trial);
}

absl::StatusOr<v1::JobSpec> SpecOfTrial(const v1::JobSpec& sweep, int32_t trial,
                                        const sweep::Values& values) {
  v1::JobSpec spec = sweep;
  spec.clear_sweep();
  for (const auto& [path, value] : values) {
    TY_RETURN_IF_ERROR(spec::ApplyChange(spec, path, value));
  }
  const std::string suffix = absl::StrCat("-", trial);
  spec.set_name(absl::StrCat(spec.name().substr(0, kNameBytes - suffix.size()), suffix));
  return spec;
}

}  // namespace trainyard::sweeps
