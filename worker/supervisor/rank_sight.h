// Looks at a process that does not answer: its state, and the stacks of its threads.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace trainyard::supervisor {

struct RankSight {
  // A clause for people: "is stopped by a signal (T)", "sleeps in futex (S), in Receive < Step".
  std::string clause;
  // Lines: the stacks of all threads, or what /proc tells of them where there are no stacks, and
  // why.
  std::string text;
};

// "is stopped by a signal (T)", "is running (R)", "sleeps in futex (S)": of the main thread.
std::string StateClause(pid_t pid);

// The functions that tell most of where a process stands, innermost first: those of the first
// thread of `stacks` (trainyard-stack's output) below what only waits, without parameters.
std::vector<std::string> TellingFrames(absl::string_view stacks);

// Runs `stack_program PID` for at most `limit`. The process goes on as it was afterwards.
RankSight LookAt(pid_t pid, const std::string& stack_program, absl::Duration limit);

}  // namespace trainyard::supervisor
