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
  // Lines with the stacks of all threads, or with what /proc tells of them if there are no stacks,
  // and why.
  std::string text;
};

// Returns the state of the main thread: "is stopped by a signal (T)", "is running (R)", "sleeps in
// futex (S)".
std::string StateClause(pid_t pid);

// Returns the functions that say most about where a process is, innermost first: those of the first
// thread of `stacks` (trainyard-stack's output) below functions that only wait, without parameters.
std::vector<std::string> TellingFrames(absl::string_view stacks);

// Runs `stack_program PID` for at most `limit`. Afterwards the process continues as before.
RankSight LookAt(pid_t pid, const std::string& stack_program, absl::Duration limit);

}  // namespace trainyard::supervisor
