// Implements the transitions of an attempt, one overload for each pair of state and input.
#include "server/core/lifecycle/attempt_fsm.h"

#include <utility>

namespace trainyard::core::attempt_fsm {
namespace {

Result Go(State next) {
  return Transition<State, Effect>{std::move(next), {}};
}
Result Go(State next, Effect effect) {
  return Transition<State, Effect>{std::move(next), {std::move(effect)}};
}
Result Ignore(absl::string_view reason) {
  return Ignored{std::string(reason)};
}
Result Refuse(absl::string_view reason) {
  return Refused{std::string(reason)};
}

Result Fail(const PartFailed& in) {
  return Go(Stopping{StopReason::kNone, in.failure});
}
Result StopFor(const Stop& in) {
  return Go(Stopping{in.reason, {}});
}

// Edge (4). Parts that failed have reported that earlier, as an input of its own.
Result Finish(const AllGone& in) {
  if (in.succeeded) return Go(Succeeded{}, TellEnded{});
  return Refuse("all parts are gone, and none has failed");
}

// If a rank fails, the ranks that lose it as a peer fail too, and their reports may arrive first.
// The failure that names the cause wins.
int Weight(FailureClass failure_class) {
  switch (failure_class) {
    case FailureClass::kUserError:
    case FailureClass::kPoison:
      return 3;
    case FailureClass::kHardware:
      return 2;
    case FailureClass::kTransient:
      return 1;
    case FailureClass::kLost:
    case FailureClass::kNone:
      break;
  }
  return 0;
}

// Edges (6) and (7).
Result FinishStop(const Stopping& state, const AllGone& in) {
  if (in.succeeded) return Go(Succeeded{}, TellEnded{});
  switch (state.reason) {
    case StopReason::kNone:
      if (state.failure.failure_class == FailureClass::kLost) {
        return Go(Lost{state.failure}, TellEnded{});
      }
      return Go(Failed{state.failure}, TellEnded{});
    case StopReason::kCancel:
      return Go(Cancelled{}, TellEnded{});
    case StopReason::kTimeLimit:
      return Go(Failed{{FailureClass::kUserError, "TIME_LIMIT", "the time limit was reached"}},
                TellEnded{});
    case StopReason::kSuspend:
    case StopReason::kPreempt:
    case StopReason::kDrain:
    case StopReason::kResize:
      return Go(Preempted{state.reason}, TellEnded{});
  }
  return Refuse("stops without a reason");
}

struct Decide {
  // Placed
  Result operator()(const Placed&, const RanksSeen&) const { return Go(Starting{}); }
  Result operator()(const Placed&, const AllRanksRunning&) const {
    return Go(Running{}, TellRunning{});
  }
  Result operator()(const Placed&, const Stop& in) const { return StopFor(in); }
  Result operator()(const Placed&, const PartFailed& in) const { return Fail(in); }
  Result operator()(const Placed&, const AllGone& in) const { return Finish(in); }

  // Starting
  Result operator()(const Starting&, const RanksSeen&) const { return Ignore("starts already"); }
  Result operator()(const Starting&, const AllRanksRunning&) const {
    return Go(Running{}, TellRunning{});
  }
  Result operator()(const Starting&, const Stop& in) const { return StopFor(in); }
  Result operator()(const Starting&, const PartFailed& in) const { return Fail(in); }
  Result operator()(const Starting&, const AllGone& in) const { return Finish(in); }

  // Running
  Result operator()(const Running&, const RanksSeen&) const { return Ignore(kRuns); }
  Result operator()(const Running&, const AllRanksRunning&) const { return Ignore(kRuns); }
  Result operator()(const Running&, const Stop& in) const { return StopFor(in); }
  Result operator()(const Running&, const PartFailed& in) const { return Fail(in); }
  Result operator()(const Running&, const AllGone& in) const { return Finish(in); }

  // Stopping
  Result operator()(const Stopping&, const RanksSeen&) const { return Ignore(kStops); }
  Result operator()(const Stopping&, const AllRanksRunning&) const { return Ignore(kStops); }
  Result operator()(const Stopping& state, const Stop& in) const {
    if (state.reason == StopReason::kNone) return Ignore("it fails already");
    if (state.reason == in.reason) return Ignore(kStops);
    return Go(Stopping{in.reason, {}});
  }
  Result operator()(const Stopping& state, const PartFailed& in) const {
    if (state.reason != StopReason::kNone) return Ignore("it was told to stop");
    if (Weight(in.failure.failure_class) <= Weight(state.failure.failure_class)) {
      return Ignore("it fails already");
    }
    return Fail(in);
  }
  Result operator()(const Stopping& state, const AllGone& in) const {
    return FinishStop(state, in);
  }

  // Succeeded
  Result operator()(const Succeeded&, const RanksSeen&) const { return Ignore(kEnded); }
  Result operator()(const Succeeded&, const AllRanksRunning&) const { return Ignore(kEnded); }
  Result operator()(const Succeeded&, const Stop&) const { return Ignore(kEnded); }
  Result operator()(const Succeeded&, const PartFailed&) const { return Ignore(kEnded); }
  Result operator()(const Succeeded&, const AllGone&) const { return Ignore(kEnded); }

  // Failed
  Result operator()(const Failed&, const RanksSeen&) const { return Ignore(kEnded); }
  Result operator()(const Failed&, const AllRanksRunning&) const { return Ignore(kEnded); }
  Result operator()(const Failed&, const Stop&) const { return Ignore(kEnded); }
  Result operator()(const Failed&, const PartFailed&) const { return Ignore(kEnded); }
  Result operator()(const Failed&, const AllGone&) const { return Ignore(kEnded); }

  // Preempted
  Result operator()(const Preempted&, const RanksSeen&) const { return Ignore(kEnded); }
  Result operator()(const Preempted&, const AllRanksRunning&) const { return Ignore(kEnded); }
  Result operator()(const Preempted&, const Stop&) const { return Ignore(kEnded); }
  Result operator()(const Preempted&, const PartFailed&) const { return Ignore(kEnded); }
  Result operator()(const Preempted&, const AllGone&) const { return Ignore(kEnded); }

  // Cancelled
  Result operator()(const Cancelled&, const RanksSeen&) const { return Ignore(kEnded); }
  Result operator()(const Cancelled&, const AllRanksRunning&) const { return Ignore(kEnded); }
  Result operator()(const Cancelled&, const Stop&) const { return Ignore(kEnded); }
  Result operator()(const Cancelled&, const PartFailed&) const { return Ignore(kEnded); }
  Result operator()(const Cancelled&, const AllGone&) const { return Ignore(kEnded); }

  // Lost
  Result operator()(const Lost&, const RanksSeen&) const { return Ignore(kEnded); }
  Result operator()(const Lost&, const AllRanksRunning&) const { return Ignore(kEnded); }
  Result operator()(const Lost&, const Stop&) const { return Ignore(kEnded); }
  Result operator()(const Lost&, const PartFailed&) const { return Ignore(kEnded); }
  Result operator()(const Lost&, const AllGone&) const { return Ignore(kEnded); }

  static constexpr char kRuns[] = "runs already";
  static constexpr char kStops[] = "being stopped already";
  static constexpr char kEnded[] = "it has ended";
};

}  // namespace

Result Step(const State& state, const Input& input) {
  return std::visit(Decide{}, state, input);
}

absl::string_view Name(const State& state) {
  return NameOf(state);
}

bool IsFinal(const State& state) {
  return std::holds_alternative<Succeeded>(state) || std::holds_alternative<Failed>(state) ||
         std::holds_alternative<Preempted>(state) || std::holds_alternative<Cancelled>(state) ||
         std::holds_alternative<Lost>(state);
}

}  // namespace trainyard::core::attempt_fsm
