// Defines the life of a job. The functions are pure: a state and an input give the next state and
// effects.
//
//  ----> Queued ------> Starting ------> Running ------> Succeeded, Failed
//   (1)   ^  ^   (2)       |     (3)        |     (4)
//         |  +----(6)------+-----(6)--------+
//     (5) |                +-----(7)--------+--> Stopping --(8 cancel)----> Cancelled
//         v                                       |    |
//      Suspended <------(8 suspend)---------------+    +----(8 preempt, drain, resize)--> Queued
//
// 1 submitted                     5 suspended, resumed while nothing runs
// 2 gang placed                   6 attempt lost or failed retryably: queued again, not before t
// 3 every rank reports running    7 somebody wants it stopped
// 4 attempt succeeded, or failed  8 the attempt is gone: the reason of the stop decides where to;
//   for good                        a time limit fails the job
//
// Some edges are not drawn. A poisoned job goes from (6) to Suspended, where it waits for a person.
// A Queued or Suspended job is cancelled at once. An attempt that had succeeded before a stop
// reached it makes the job Succeeded, whatever the reason of the stop was.
// docs/job_lifecycle.md holds the whole table, which a test checks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "absl/strings/string_view.h"
#include "server/core/lifecycle/transition.h"
#include "server/core/lifecycle/words.h"

namespace trainyard::core::job_fsm {

// These are the states. The final ones are Succeeded, Failed and Cancelled.

// The job waits for devices. Its place in the queue depends on the job's number, so a failure never
// lowers it.
struct Queued {
  static constexpr char kName[] = "QUEUED";
  int64_t not_before_us = 0;            // wall time; 0 means at once
  std::optional<Failure> last_failure;  // of the attempt before, if it failed

  friend bool operator==(const Queued&, const Queued&) = default;
};
struct Starting {
  static constexpr char kName[] = "STARTING";

  friend bool operator==(const Starting&, const Starting&) = default;
};
struct Running {
  static constexpr char kName[] = "RUNNING";

  friend bool operator==(const Running&, const Running&) = default;
};
struct Stopping {
  static constexpr char kName[] = "STOPPING";
  StopReason reason = StopReason::kNone;
  std::string detail;  // which limit, or for whom

  friend bool operator==(const Stopping&, const Stopping&) = default;
};
// If there is a failure, the job is held for a person (class kPoison), who resumes or cancels it.
struct Suspended {
  static constexpr char kName[] = "SUSPENDED";
  std::optional<Failure> failure;

  friend bool operator==(const Suspended&, const Suspended&) = default;
};
struct Succeeded {
  static constexpr char kName[] = "SUCCEEDED";

  friend bool operator==(const Succeeded&, const Succeeded&) = default;
};
struct Failed {
  static constexpr char kName[] = "FAILED";
  Failure failure;

  friend bool operator==(const Failed&, const Failed&) = default;
};
struct Cancelled {
  static constexpr char kName[] = "CANCELLED";

  friend bool operator==(const Cancelled&, const Cancelled&) = default;
};

using State =
    std::variant<Queued, Starting, Running, Stopping, Suspended, Succeeded, Failed, Cancelled>;

// These are the inputs.

struct Placed {};
struct AllRanksRunning {};
struct AttemptSucceeded {};
// The verdict of the retry policy: queue the job again, hold it for a person, or give up.
struct AttemptFailed {
  Failure failure;  // of the attempt; if it gives up, the failure of the job
  bool give_up = false;
  bool hold = false;
  bool counts_as_retry = false;
  int64_t not_before_us = 0;  // wall
};
// The attempt is gone because it was asked to stop.
struct AttemptStopped {};
// The attempt is gone, or fenced off, and how it ended is unknown. This costs no retry.
struct AttemptLost {
  Failure failure;
  int64_t not_before_us = 0;  // wall
};
struct Cancel {};
struct Suspend {};
struct Resume {};
struct Preempt {
  std::string detail;  // "for jobs/12"
};
struct Drain {
  std::string detail;
};
// An elastic job continues with more or fewer devices.
struct Resize {
  std::string detail;
};
struct TimeLimit {
  std::string detail;  // "time limit of 1h 00m reached"
};

using Input = std::variant<Placed, AllRanksRunning, AttemptSucceeded, AttemptFailed, AttemptStopped,
                           AttemptLost, Cancel, Suspend, Resume, Preempt, Drain, Resize, TimeLimit>;

// These are the effects.

// Tells the attempt to stop, or that the reason of its stop has changed.
struct StopAttempt {
  StopReason reason = StopReason::kNone;
};
struct CountRetry {};

using Effect = std::variant<StopAttempt, CountRetry>;

using Result = StepResult<State, Effect>;

Result Step(const State& state, const Input& input);

// Returns QUEUED, STARTING, RUNNING, STOPPING, SUSPENDED, SUCCEEDED, FAILED or CANCELLED.
absl::string_view Name(const State& state);
bool IsFinal(const State& state);

}  // namespace trainyard::core::job_fsm
