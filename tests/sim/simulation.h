// One simulated pool, from its first second until every job has ended.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace trainyard::sim {

struct Result {
  bool is_broken = false;
  std::string rule;  // the promise that was broken
  std::string what;
  uint64_t hash = 0;     // of the whole story
  int64_t hours_us = 0;  // virtual time of the pool
  int64_t events = 0;
  int64_t jobs = 0;
  int64_t attempts = 0;
  double useful = 0;  // the part of the first job's life in which it trained what it kept
};

// Simulates a seed. `bug` is one of Bugs(), or empty. `tell` means that the story is printed.
Result Simulate(uint64_t seed, absl::string_view bug = "", bool tell = false);

// Simulates the pool of LongJobOptions.
Result SimulateLongJob(uint64_t seed);

// Simulates a seed twice. A difference is a broken promise, too. Virtual time counts only once.
Result SimulateTwice(uint64_t seed);

}  // namespace trainyard::sim
