// Chooses who copies whom in population based training.
#pragma once

#include <cstdint>
#include <vector>

#include "server/core/sweeping/record.h"
#include "server/core/sweeping/trial.h"

namespace trainyard::core::sweeping {

// A trial that is to go on from the checkpoint of another one, `step`.
struct Copy {
  int32_t trial = 0;
  int32_t donor = 0;
  int64_t step = 0;
};

// Chooses the copies after a generation, at a time when all trials that have not ended are held at
// the rung `generation`. The population is those n trials and the ones that have failed.
//
// The worst floor(quantile * n), and at least one of 4 or more, are replaced. Trials that have
// failed are the worst, and all of them are replaced even if they are more. The donors are as many
// of the best, and at least one, among those that stay, have told a number and have a checkpoint.
// The worst trial copies the best donor, and so on in turns. Of equal trials, the first is the
// best.
std::vector<Copy> PlanCopies(const Definition& definition, const std::vector<Trial>& trials,
                             int32_t generation);

}  // namespace trainyard::core::sweeping
