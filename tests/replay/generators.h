// Workloads made up by rule and seed: the same on every machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tests/replay/trace.h"

namespace trainyard::replay {

struct GeneratorOptions {
  uint64_t seed = 1;
  int64_t jobs = 100'000;  // of `large`
  int32_t workers = 1000;  // of `large`
};

// lab-day      one server of 8 devices, ten users, a working day: short interactive jobs of high
//              priority, long trainings, elastic ones, a sweep, gangs of all 8 devices
// hostile-mix  4 servers of 8: small jobs without end that would starve wide gangs, one user who
//              submits hundreds at once, some jobs of high priority
// large        1,000 servers of 8, 100,000 jobs of 200 users, all submitted within a minute
// NOT_FOUND with the names otherwise.
absl::StatusOr<Trace> GenerateTrace(absl::string_view name, const GeneratorOptions& options);

}  // namespace trainyard::replay
