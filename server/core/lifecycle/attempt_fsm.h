// Defines the life of an attempt, which is one placement of a job's gang. The functions are pure.
//
//  ---> Placed ----> Starting ----> Running ----(4)----> Succeeded
//  (1)     |   (2)       |    (3)      |
//          +----(5)------+-----(5)-----+----> Stopping --(6)--> Failed, Lost
//                                                 |
//                                                 +------(7)--> Preempted, Cancelled
//
// 1 devices allocated, token drawn   5 a rank failed or was lost, or a stop was asked for:
// 2 a worker reports ranks             the whole gang stops
// 3 every rank runs                  6 all parts are gone; a failure was the cause
// 4 all parts are gone, and all      7 all parts are gone; a stop was the cause
//   of them succeeded
//
// A short attempt may end between two reports: (4) and (5) leave from Placed and Starting too.
// An attempt of which all parts had succeeded before the stop reached them is Succeeded.
#pragma once

#include <variant>

#include "absl/strings/string_view.h"
#include "server/core/lifecycle/transition.h"
#include "server/core/lifecycle/words.h"

namespace trainyard::core::attempt_fsm {

struct Placed {
  static constexpr char kName[] = "PLACED";

  friend bool operator==(const Placed&, const Placed&) = default;
};
struct Starting {
  static constexpr char kName[] = "STARTING";

  friend bool operator==(const Starting&, const Starting&) = default;
};
struct Running {
  static constexpr char kName[] = "RUNNING";

  friend bool operator==(const Running&, const Running&) = default;
};
// `reason` is kNone if a failure is the cause. Then `failure` describes it.
struct Stopping {
  static constexpr char kName[] = "STOPPING";
  StopReason reason = StopReason::kNone;
  Failure failure;

  friend bool operator==(const Stopping&, const Stopping&) = default;
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
// The attempt was stopped for a better claim, a suspension, a drain or another size.
struct Preempted {
  static constexpr char kName[] = "PREEMPTED";
  StopReason reason = StopReason::kNone;

  friend bool operator==(const Preempted&, const Preempted&) = default;
};
struct Cancelled {
  static constexpr char kName[] = "CANCELLED";

  friend bool operator==(const Cancelled&, const Cancelled&) = default;
};
// The outcome is unknown; `failure` has class kLost.
struct Lost {
  static constexpr char kName[] = "LOST";
  Failure failure;

  friend bool operator==(const Lost&, const Lost&) = default;
};

using State = std::variant<Placed, Starting, Running, Stopping, Succeeded, Failed, Preempted,
                           Cancelled, Lost>;

// A worker has reported ranks of the attempt.
struct RanksSeen {};
struct AllRanksRunning {};
// Somebody wants the attempt stopped.
struct Stop {
  StopReason reason = StopReason::kNone;
};
// A part of the attempt failed, or, if the class is kLost, was lost.
struct PartFailed {
  Failure failure;
};
// Every part is gone: its ranks have exited and it is drained, or it is lost.
struct AllGone {
  bool succeeded = false;  // every part has succeeded
};

using Input = std::variant<RanksSeen, AllRanksRunning, Stop, PartFailed, AllGone>;

// These are the effects. They report to the job what happened.
struct TellRunning {};
struct TellEnded {};

using Effect = std::variant<TellRunning, TellEnded>;

using Result = StepResult<State, Effect>;

Result Step(const State& state, const Input& input);

// Returns PLACED, STARTING, RUNNING, STOPPING, SUCCEEDED, FAILED, PREEMPTED, CANCELLED or LOST.
absl::string_view Name(const State& state);
bool IsFinal(const State& state);

}  // namespace trainyard::core::attempt_fsm
