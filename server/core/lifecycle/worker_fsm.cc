// Implements the transitions of a worker, one overload for each pair of state and input.
#include "server/core/lifecycle/worker_fsm.h"

#include <utility>

namespace trainyard::core::worker_fsm {
namespace {

Result Go(State next, std::vector<Effect> effects) {
  return Transition<State, Effect>{std::move(next), std::move(effects)};
}
Result Ignore(absl::string_view reason) {
  return Ignored{std::string(reason)};
}

struct Decide {
  // Active
  Result operator()(const Active&, const Synced&) const { return Ignore("active already"); }
  Result operator()(const Active&, const LeaseExpired& in) const {
    return Go(Unreachable{in.now_us}, {PlanAgain{}});
  }
  Result operator()(const Active&, const GaveUp&) const {
    return Refused{"it is active, and nothing of it is lost"};
  }

  // Unreachable
  Result operator()(const Unreachable&, const Synced&) const { return Go(Active{}, {PlanAgain{}}); }
  Result operator()(const Unreachable&, const LeaseExpired&) const {
    return Ignore("unreachable already");
  }
  Result operator()(const Unreachable&, const GaveUp& in) const {
    return Go(Gone{in.now_us}, {EndSession{}, PlanAgain{}});
  }

  // Gone
  Result operator()(const Gone&, const Synced&) const { return Go(Active{}, {PlanAgain{}}); }
  Result operator()(const Gone&, const LeaseExpired&) const { return Ignore("gone already"); }
  Result operator()(const Gone&, const GaveUp&) const { return Ignore("gone already"); }
};

SchedulingResult GoScheduling(SchedulingState next, SchedulingEffect effect) {
  return Transition<SchedulingState, SchedulingEffect>{next, {effect}};
}
SchedulingResult IgnoreScheduling(absl::string_view reason) {
  return Ignored{std::string(reason)};
}

struct DecideScheduling {
  using Result = SchedulingResult;
  // Eligible
  Result operator()(const Eligible&, const Cordon&) const {
    return GoScheduling(Cordoned{}, PlanAgain{});
  }
  Result operator()(const Eligible&, const Uncordon&) const {
    return IgnoreScheduling("eligible already");
  }
  Result operator()(const Eligible&, const Drain&) const {
    return GoScheduling(Draining{}, StopAttempts{});
  }
  // Cordoned
  Result operator()(const Cordoned&, const Cordon&) const {
    return IgnoreScheduling("cordoned already");
  }
  Result operator()(const Cordoned&, const Uncordon&) const {
    return GoScheduling(Eligible{}, PlanAgain{});
  }
  Result operator()(const Cordoned&, const Drain&) const {
    return GoScheduling(Draining{}, StopAttempts{});
  }
  // Draining
  Result operator()(const Draining&, const Cordon&) const {
    return IgnoreScheduling("a draining worker is cordoned");
  }
  Result operator()(const Draining&, const Uncordon&) const {
    return GoScheduling(Eligible{}, PlanAgain{});
  }
  Result operator()(const Draining&, const Drain&) const {
    return IgnoreScheduling("draining already");
  }
};

struct SchedulingOf {
  Scheduling operator()(const Eligible&) const { return Scheduling::kEligible; }
  Scheduling operator()(const Cordoned&) const { return Scheduling::kCordoned; }
  Scheduling operator()(const Draining&) const { return Scheduling::kDraining; }
};

}  // namespace

Result Step(const State& state, const Input& input) {
  return std::visit(Decide{}, state, input);
}

absl::string_view Name(const State& state) {
  return NameOf(state);
}

SchedulingResult Step(const SchedulingState& state, const SchedulingInput& input) {
  return std::visit(DecideScheduling{}, state, input);
}

SchedulingState ToState(Scheduling scheduling) {
  switch (scheduling) {
    case Scheduling::kEligible:
      return Eligible{};
    case Scheduling::kCordoned:
      return Cordoned{};
    case Scheduling::kDraining:
      break;
  }
  return Draining{};
}

Scheduling FromState(const SchedulingState& state) {
  return std::visit(SchedulingOf{}, state);
}

}  // namespace trainyard::core::worker_fsm
