// Says what a job has left behind, so that one that was disturbed can be compared with one that was
// not: its curve and its weights.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "tests/integration/yard.h"

namespace trainyard::testing {

struct Trace {
  // The losses by step.
  std::map<int64_t, double> losses;
  // The points that an attempt has measured twice. Attempts after a failure repeat the steps that
  // followed their checkpoint, and those do not count.
  int64_t doubled = 0;
  // The repeated steps whose loss is not that of the first time.
  int64_t different = 0;
  // The files of the last checkpoint that do not name the job, by name.
  std::map<std::string, std::string> weights;
};

// Reads the trace of a job that has ended, and downloads its last checkpoint.
Trace TraceOf(Yard& yard, const std::string& job);

// Expects that all steps are there, each point once, and that curve and weights are, to the bit,
// those of the job that was left alone.
void ExpectNoTrace(const Trace& disturbed, const Trace& undisturbed, int64_t steps);

}  // namespace trainyard::testing
