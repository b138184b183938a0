// Implements the transitions of a job, one overload for each pair of state and input.
#include "server/core/lifecycle/job_fsm.h"

#include "absl/strings/str_cat.h"

namespace trainyard::core::job_fsm {
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

Result StopFor(StopReason reason, std::string detail = "") {
  return Go(Stopping{reason, std::move(detail)}, StopAttempt{reason});
}

// Edges (4) and (6): a failure while the job starts or runs.
Result AfterFailure(const AttemptFailed& in) {
  if (in.give_up) return Go(Failed{in.failure});
  if (in.hold) return Go(Suspended{in.failure});
  Queued next{in.not_before_us, in.failure};
  return in.counts_as_retry ? Go(std::move(next), CountRetry{}) : Go(std::move(next));
}
Result AfterLoss(const AttemptLost& in) {
  return Go(Queued{in.not_before_us, in.failure});
}

// Edge (8): the attempt is gone, and the reason of the stop decides what follows.
Result AfterStop(const Stopping& state) {
  switch (state.reason) {
    case StopReason::kCancel:
      return Go(Cancelled{});
    case StopReason::kSuspend:
      return Go(Suspended{});
    case StopReason::kTimeLimit:
      return Go(Failed{{FailureClass::kUserError, "TIME_LIMIT", state.detail}});
    case StopReason::kPreempt:
    case StopReason::kDrain:
    case StopReason::kResize:
      return Go(Queued{});
    case StopReason::kNone:
      break;
  }
  return Refuse("stops without a reason");
}

// The failure came before the stop reached the ranks. A failure that would repeat fails the job
// now, since suspending or queueing it would gain nothing.
Result AfterFailureInStop(const Stopping& state, const AttemptFailed& in) {
  switch (state.reason) {
    case StopReason::kSuspend:
      if (in.give_up) return Go(Failed{in.failure});
      return in.hold ? Go(Suspended{in.failure}) : Go(Suspended{});
    case StopReason::kPreempt:
    case StopReason::kDrain:
    case StopReason::kResize:
      return AfterFailure(in);
    case StopReason::kCancel:
    case StopReason::kTimeLimit:
    case StopReason::kNone:
      break;
  }
  return AfterStop(state);
}

// Every pair of state and input has its own overload: a new state or input does not compile until
// each pair is decided.
struct Decide {
  // Queued
  Result operator()(const Queued&, const Placed&) const { return Go(Starting{}); }
  Result operator()(const Queued&, const AllRanksRunning&) const { return Ignore(kNothingRuns); }
  Result operator()(const Queued&, const AttemptSucceeded&) const { return Ignore(kNothingRuns); }
  Result operator()(const Queued&, const AttemptFailed&) const { return Ignore(kNothingRuns); }
  Result operator()(const Queued&, const AttemptStopped&) const { return Ignore(kNothingRuns); }
  Result operator()(const Queued&, const AttemptLost&) const { return Ignore(kNothingRuns); }
  Result operator()(const Queued&, const Cancel&) const { return Go(Cancelled{}); }
  Result operator()(const Queued&, const Suspend&) const { return Go(Suspended{}); }
  Result operator()(const Queued&, const Resume&) const { return Ignore("queued already"); }
  Result operator()(const Queued&, const Preempt&) const { return Ignore(kNothingRuns); }
  Result operator()(const Queued&, const Drain&) const { return Ignore(kNothingRuns); }
  Result operator()(const Queued&, const Resize&) const { return Ignore(kNothingRuns); }
  Result operator()(const Queued&, const TimeLimit&) const { return Ignore(kNothingRuns); }

  // Starting
  Result operator()(const Starting&, const Placed&) const { return Refuse(kPlacedTwice); }
  Result operator()(const Starting&, const AllRanksRunning&) const { return Go(Running{}); }
  Result operator()(const Starting&, const AttemptSucceeded&) const { return Go(Succeeded{}); }
  Result operator()(const Starting&, const AttemptFailed& in) const { return AfterFailure(in); }
  Result operator()(const Starting&, const AttemptStopped&) const { return Go(Queued{}); }
  Result operator()(const Starting&, const AttemptLost& in) const { return AfterLoss(in); }
  Result operator()(const Starting&, const Cancel&) const { return StopFor(StopReason::kCancel); }
  Result operator()(const Starting&, const Suspend&) const { return StopFor(StopReason::kSuspend); }
  Result operator()(const Starting&, const Resume&) const { return Ignore(kNotSuspended); }
  Result operator()(const Starting&, const Preempt& in) const {
    return StopFor(StopReason::kPreempt, in.detail);
  }
  Result operator()(const Starting&, const Drain& in) const {
    return StopFor(StopReason::kDrain, in.detail);
  }
  Result operator()(const Starting&, const Resize& in) const {
    return StopFor(StopReason::kResize, in.detail);
  }
  Result operator()(const Starting&, const TimeLimit&) const {
    return Ignore("run time counts from RUNNING");
  }

  // Running
  Result operator()(const Running&, const Placed&) const { return Refuse(kPlacedTwice); }
  Result operator()(const Running&, const AllRanksRunning&) const { return Ignore("runs already"); }
  Result operator()(const Running&, const AttemptSucceeded&) const { return Go(Succeeded{}); }
  Result operator()(const Running&, const AttemptFailed& in) const { return AfterFailure(in); }
  Result operator()(const Running&, const AttemptStopped&) const { return Go(Queued{}); }
  Result operator()(const Running&, const AttemptLost& in) const { return AfterLoss(in); }
  Result operator()(const Running&, const Cancel&) const { return StopFor(StopReason::kCancel); }
  Result operator()(const Running&, const Suspend&) const { return StopFor(StopReason::kSuspend); }
  Result operator()(const Running&, const Resume&) const { return Ignore(kNotSuspended); }
  Result operator()(const Running&, const Preempt& in) const {
    return StopFor(StopReason::kPreempt, in.detail);
  }
  Result operator()(const Running&, const Drain& in) const {
    return StopFor(StopReason::kDrain, in.detail);
  }
  Result operator()(const Running&, const Resize& in) const {
    return StopFor(StopReason::kResize, in.detail);
  }
  Result operator()(const Running&, const TimeLimit& in) const {
    return StopFor(StopReason::kTimeLimit, in.detail);
  }

  // Stopping
  Result operator()(const Stopping&, const Placed&) const { return Refuse(kPlacedTwice); }
  Result operator()(const Stopping&, const AllRanksRunning&) const { return Ignore(kStops); }
  Result operator()(const Stopping&, const AttemptSucceeded&) const { return Go(Succeeded{}); }
  Result operator()(const Stopping& state, const AttemptFailed& in) const {
    return AfterFailureInStop(state, in);
  }
  Result operator()(const Stopping& state, const AttemptStopped&) const { return AfterStop(state); }
  Result operator()(const Stopping& state, const AttemptLost&) const { return AfterStop(state); }
  Result operator()(const Stopping& state, const Cancel&) const {
    if (state.reason == StopReason::kCancel) return Ignore("being cancelled already");
    return StopFor(StopReason::kCancel);
  }
  Result operator()(const Stopping& state, const Suspend&) const {
    if (state.reason == StopReason::kSuspend) return Ignore("being suspended already");
    if (GoesOn(state)) return StopFor(StopReason::kSuspend);
    return Refuse("being stopped for good");
  }
  // A suspension that has not taken effect yet becomes a return to the queue.
  Result operator()(const Stopping& state, const Resume&) const {
    if (state.reason == StopReason::kSuspend) return StopFor(StopReason::kPreempt);
    if (GoesOn(state)) return Ignore("queues again by itself");
    return Refuse("being stopped for good");
  }
  Result operator()(const Stopping&, const Preempt&) const { return Ignore(kStops); }
  Result operator()(const Stopping&, const Drain&) const { return Ignore(kStops); }
  Result operator()(const Stopping&, const Resize&) const { return Ignore(kStops); }
  Result operator()(const Stopping&, const TimeLimit&) const { return Ignore(kStops); }

  // Suspended
  Result operator()(const Suspended&, const Placed&) const { return Refuse("suspended"); }
  Result operator()(const Suspended&, const AllRanksRunning&) const { return Ignore(kNothingRuns); }
  Result operator()(const Suspended&, const AttemptSucceeded&) const {
    return Ignore(kNothingRuns);
  }
  Result operator()(const Suspended&, const AttemptFailed&) const { return Ignore(kNothingRuns); }
  Result operator()(const Suspended&, const AttemptStopped&) const { return Ignore(kNothingRuns); }
  Result operator()(const Suspended&, const AttemptLost&) const { return Ignore(kNothingRuns); }
  Result operator()(const Suspended&, const Cancel&) const { return Go(Cancelled{}); }
  Result operator()(const Suspended&, const Suspend&) const { return Ignore("suspended already"); }
  Result operator()(const Suspended&, const Resume&) const { return Go(Queued{}); }
  Result operator()(const Suspended&, const Preempt&) const { return Ignore(kNothingRuns); }
  Result operator()(const Suspended&, const Drain&) const { return Ignore(kNothingRuns); }
  Result operator()(const Suspended&, const Resize&) const { return Ignore(kNothingRuns); }
  Result operator()(const Suspended&, const TimeLimit&) const { return Ignore(kNothingRuns); }

  // Succeeded
  Result operator()(const Succeeded&, const Placed&) const { return Refuse(kEnded); }
  Result operator()(const Succeeded&, const AllRanksRunning&) const { return Ignore(kEnded); }
  Result operator()(const Succeeded&, const AttemptSucceeded&) const { return Ignore(kEnded); }
  Result operator()(const Succeeded&, const AttemptFailed&) const { return Ignore(kEnded); }
  Result operator()(const Succeeded&, const AttemptStopped&) const { return Ignore(kEnded); }
  Result operator()(const Succeeded&, const AttemptLost&) const { return Ignore(kEnded); }
  Result operator()(const Succeeded&, const Cancel&) const { return Refuse(kEnded); }
  Result operator()(const Succeeded&, const Suspend&) const { return Refuse(kEnded); }
  Result operator()(const Succeeded&, const Resume&) const { return Refuse(kEnded); }
  Result operator()(const Succeeded&, const Preempt&) const { return Ignore(kEnded); }
  Result operator()(const Succeeded&, const Drain&) const { return Ignore(kEnded); }
  Result operator()(const Succeeded&, const Resize&) const { return Ignore(kEnded); }
  Result operator()(const Succeeded&, const TimeLimit&) const { return Ignore(kEnded); }

  // Failed
  Result operator()(const Failed&, const Placed&) const { return Refuse(kEnded); }
  Result operator()(const Failed&, const AllRanksRunning&) const { return Ignore(kEnded); }
  Result operator()(const Failed&, const AttemptSucceeded&) const { return Ignore(kEnded); }
  Result operator()(const Failed&, const AttemptFailed&) const { return Ignore(kEnded); }
  Result operator()(const Failed&, const AttemptStopped&) const { return Ignore(kEnded); }
  Result operator()(const Failed&, const AttemptLost&) const { return Ignore(kEnded); }
  Result operator()(const Failed&, const Cancel&) const { return Refuse(kEnded); }
  Result operator()(const Failed&, const Suspend&) const { return Refuse(kEnded); }
  Result operator()(const Failed&, const Resume&) const { return Refuse(kEnded); }
  Result operator()(const Failed&, const Preempt&) const { return Ignore(kEnded); }
  Result operator()(const Failed&, const Drain&) const { return Ignore(kEnded); }
  Result operator()(const Failed&, const Resize&) const { return Ignore(kEnded); }
  Result operator()(const Failed&, const TimeLimit&) const { return Ignore(kEnded); }

  // Cancelled
  Result operator()(const Cancelled&, const Placed&) const { return Refuse(kEnded); }
  Result operator()(const Cancelled&, const AllRanksRunning&) const { return Ignore(kEnded); }
  Result operator()(const Cancelled&, const AttemptSucceeded&) const { return Ignore(kEnded); }
  Result operator()(const Cancelled&, const AttemptFailed&) const { return Ignore(kEnded); }
  Result operator()(const Cancelled&, const AttemptStopped&) const { return Ignore(kEnded); }
  Result operator()(const Cancelled&, const AttemptLost&) const { return Ignore(kEnded); }
  Result operator()(const Cancelled&, const Cancel&) const { return Ignore("cancelled already"); }
  Result operator()(const Cancelled&, const Suspend&) const { return Refuse(kEnded); }
  Result operator()(const Cancelled&, const Resume&) const { return Refuse(kEnded); }
  Result operator()(const Cancelled&, const Preempt&) const { return Ignore(kEnded); }
  Result operator()(const Cancelled&, const Drain&) const { return Ignore(kEnded); }
  Result operator()(const Cancelled&, const Resize&) const { return Ignore(kEnded); }
  Result operator()(const Cancelled&, const TimeLimit&) const { return Ignore(kEnded); }

  // Returns true if the job continues after the stop.
  static bool GoesOn(const Stopping& state) {
    return state.reason == StopReason::kPreempt || state.reason == StopReason::kDrain ||
           state.reason == StopReason::kResize;
  }

  static constexpr char kNothingRuns[] = "nothing of it runs";
  static constexpr char kPlacedTwice[] = "it has an attempt";
  static constexpr char kNotSuspended[] = "not suspended";
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
         std::holds_alternative<Cancelled>(state);
}

}  // namespace trainyard::core::job_fsm
