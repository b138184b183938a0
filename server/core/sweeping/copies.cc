// Ranks the trials by their reports of one generation.
#include "server/core/sweeping/copies.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace trainyard::core::sweeping {
namespace {

constexpr double kWorstRank = std::numeric_limits<double>::infinity();  // no number was told

}  // namespace

std::vector<Copy> PlanCopies(const Definition& definition, const std::vector<Trial>& trials,
                             int32_t generation) {
  std::vector<std::pair<double, int32_t>> ranks;  // of the live trials, the best first
  std::vector<int32_t> replaced;                  // the worst first
  for (int32_t i = 0; i < static_cast<int32_t>(trials.size()); ++i) {
    const Trial& trial = trials[static_cast<size_t>(i)];
    if (trial.status == TrialStatus::kFailed) replaced.push_back(i);
    if (trial.status != TrialStatus::kPaused) continue;
    ranks.emplace_back(-ScoreOf(definition, trial.reports.at(generation).value), i);
  }
  std::sort(ranks.begin(), ranks.end());
  const size_t population = ranks.size() + replaced.size();
  // A product such as 0.29 * 100 may lie a rounding error below the integer that is meant.
  const double share = definition.quantile * static_cast<double>(population) + 1e-9;
  const size_t quantile =
      std::max<size_t>(static_cast<size_t>(std::floor(share)), population >= 4 ? 1 : 0);
  while (replaced.size() < quantile && !ranks.empty()) {
    replaced.push_back(ranks.back().second);
    ranks.pop_back();
  }
  std::vector<Copy> donors;
  for (const auto& [minus_score, i] : ranks) {
    const int64_t step = trials[static_cast<size_t>(i)].held_step.value_or(0);
    if (donors.size() == std::max<size_t>(quantile, 1) || minus_score == kWorstRank) break;
    if (step > 0) donors.push_back({.donor = i, .step = step});
  }
  std::vector<Copy> copies;
  for (size_t i = 0; i < replaced.size() && !donors.empty(); ++i) {
    copies.push_back(donors[i % donors.size()]);
    copies.back().trial = replaced[i];
  }
  return copies;
}

}  // namespace trainyard::core::sweeping
