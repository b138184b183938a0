// Runs the provisioner against a model of a cluster and of a scheduler, with crashes of the server,
// and watches what must never happen.
#pragma once

#include <cstdint>
#include <string>

namespace trainyard::provision {

// The first promise that a seed broke, or nothing.
struct Verdict {
  std::string rule;  // empty: all promises were kept
  std::string what;
  int64_t minute = 0;  // of the simulated time
  // Counts that show that the faults have happened.
  int64_t crashes = 0;
  int64_t restores = 0;  // of backups, whose state is up to two hours old
  int64_t adopted = 0;   // submissions whose reply was lost and that were found again
  int64_t lost = 0;      // submissions that never arrived
  int64_t openings = 0;  // of breakers
  int64_t jobs = 0;
  int64_t pilots = 0;
};

Verdict Simulate(uint64_t seed);

}  // namespace trainyard::provision
