// Looks for the first seed that sees a planted bug.
#include "tests/sim/bugs.h"

#include "tests/sim/simulation.h"

namespace trainyard::sim {

Catch CatchBug(const std::string& name) {
  for (uint64_t seed = 1; seed <= kBugSeeds; ++seed) {
    const Result result = Simulate(seed, name);
    if (result.is_broken) return {seed, result.rule};
  }
  return {};
}

}  // namespace trainyard::sim
