// Defines a worker as the server sees it. There are two machines: one says whether the worker is in
// contact, the other whether it gets new ranks. The functions are pure.
//
//  ---> Active <-----(3)----- Unreachable ----(4)----> Gone        (5) Gone -> Active
//  (1)     |                      ^
//          +---------(2)----------+
//
// 1 first registration   4 its attempts were declared lost, or it had none and was away for long
// 2 lease ran out        5 syncs under a new session; its old one is dead
// 3 syncs
//
// The lease also runs out for a worker whose reports arrive but that does not hear the answers.
// Registering again changes nothing, because a worker that does not hear registers again and again.
//
//  ---> Eligible <--(uncordon)-- Cordoned --(drain)--> Draining --(uncordon)--> Eligible
//          |                        ^
//          +--------(cordon)--------+        Eligible --(drain)--> Draining
#pragma once

#include <cstdint>
#include <variant>

#include "absl/strings/string_view.h"
#include "server/core/lifecycle/transition.h"
#include "server/core/lifecycle/words.h"

namespace trainyard::core::worker_fsm {

struct Active {
  static constexpr char kName[] = "ACTIVE";

  friend bool operator==(const Active&, const Active&) = default;
};
// The worker is out of contact, and its ranks may still run.
struct Unreachable {
  static constexpr char kName[] = "UNREACHABLE";
  int64_t since_us = 0;  // wall

  friend bool operator==(const Unreachable&, const Unreachable&) = default;
};
struct Gone {
  static constexpr char kName[] = "GONE";
  int64_t since_us = 0;  // wall

  friend bool operator==(const Gone&, const Gone&) = default;
};

using State = std::variant<Active, Unreachable, Gone>;

// A report has come that shows that the worker hears.
struct Synced {};
struct LeaseExpired {
  int64_t now_us = 0;  // wall
};
struct GaveUp {
  int64_t now_us = 0;  // wall
};

using Input = std::variant<Synced, LeaseExpired, GaveUp>;

// These are the effects.

// The capacity of the worker has changed, so a new pass is needed.
struct PlanAgain {};
// The session is dead. A later report under it is refused.
struct EndSession {};

using Effect = std::variant<PlanAgain, EndSession>;
using Result = StepResult<State, Effect>;

Result Step(const State& state, const Input& input);

// Returns ACTIVE, UNREACHABLE or GONE.
absl::string_view Name(const State& state);

// The second machine says whether the worker gets new ranks.

struct Eligible {};
struct Cordoned {};
struct Draining {};
using SchedulingState = std::variant<Eligible, Cordoned, Draining>;

struct Cordon {};
struct Uncordon {};
struct Drain {};
using SchedulingInput = std::variant<Cordon, Uncordon, Drain>;

// Stops what runs there, with StopReason::kDrain.
struct StopAttempts {};
using SchedulingEffect = std::variant<PlanAgain, StopAttempts>;
using SchedulingResult = StepResult<SchedulingState, SchedulingEffect>;

SchedulingResult Step(const SchedulingState& state, const SchedulingInput& input);

SchedulingState ToState(Scheduling scheduling);
Scheduling FromState(const SchedulingState& state);

}  // namespace trainyard::core::worker_fsm
