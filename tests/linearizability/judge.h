// Judges whether a job service could have behaved as its users saw it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/linearizability/history.h"

namespace trainyard::linearizability {

struct Judgement {
  // Each is what went wrong, for people. Empty if the history can be explained.
  std::vector<std::string> anomalies;
  // Jobs for which the search was given up, which proves nothing.
  std::vector<std::string> undecided;
  int64_t jobs = 0;
  int64_t steps = 0;  // of all searches
};

// The search of one job gives up after this many steps: some seconds, and some hundred MiB.
inline constexpr int64_t kStepsMax = 1'000'000;

// Looks for each job by itself for an order that explains all that was done to it and seen of it,
// which is enough for what jobs do not share. What they share is checked apart: submissions make
// one job each, numbers grow with time, revisions order the changes of all jobs, and a list shows
// all jobs as of one revision.
Judgement Judge(const History& history, int64_t steps_max = kStepsMax);

}  // namespace trainyard::linearizability
