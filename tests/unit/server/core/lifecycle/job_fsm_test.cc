// Tests the typical histories of a job.
#include "server/core/lifecycle/job_fsm.h"

#include <gtest/gtest.h>

namespace trainyard::core::job_fsm {
namespace {

using Change = Transition<State, Effect>;

const Failure kPeerLost{FailureClass::kTransient, "PEER_LOST", "peer lost"};

State Next(const State& state, const Input& input) {
  const Result result = Step(state, input);
  EXPECT_TRUE(std::holds_alternative<Change>(result)) << "no transition";
  return std::holds_alternative<Change>(result) ? std::get<Change>(result).next : state;
}

TEST(JobFsm, GoesFromTheQueueToTheEnd) {
  State state = Queued{};
  state = Next(state, Placed{});
  EXPECT_EQ(state, State(Starting{}));
  state = Next(state, AllRanksRunning{});
  EXPECT_EQ(state, State(Running{}));
  state = Next(state, AttemptSucceeded{});
  EXPECT_EQ(state, State(Succeeded{}));
  EXPECT_TRUE(IsFinal(state));
}

TEST(JobFsm, CancelWhileStartingStopsTheGang) {
  const Result result = Step(Starting{}, Cancel{});
  const auto& change = std::get<Change>(result);
  EXPECT_EQ(change.next, State(Stopping{StopReason::kCancel, ""}));
  ASSERT_EQ(change.effects.size(), 1u);
  EXPECT_EQ(std::get<StopAttempt>(change.effects[0]).reason, StopReason::kCancel);
}

TEST(JobFsm, CancelInTheQueueEndsAtOnce) {
  const Result result = Step(Queued{}, Cancel{});
  EXPECT_EQ(std::get<Change>(result).next, State(Cancelled{}));
  EXPECT_TRUE(std::get<Change>(result).effects.empty());
}

TEST(JobFsm, SuccessBeforeTheStopReachedItCounts) {
  for (const StopReason reason :
       {StopReason::kCancel, StopReason::kSuspend, StopReason::kPreempt, StopReason::kDrain,
        StopReason::kTimeLimit, StopReason::kResize}) {
    EXPECT_EQ(Next(Stopping{reason, ""}, AttemptSucceeded{}), State(Succeeded{}));
  }
}

TEST(JobFsm, TheReasonOfTheStopDecidesWhereTo) {
  EXPECT_EQ(Next(Stopping{StopReason::kCancel, ""}, AttemptStopped{}), State(Cancelled{}));
  EXPECT_EQ(Next(Stopping{StopReason::kSuspend, ""}, AttemptStopped{}), State(Suspended{}));
  EXPECT_EQ(Next(Stopping{StopReason::kPreempt, ""}, AttemptStopped{}), State(Queued{}));
  EXPECT_EQ(Next(Stopping{StopReason::kDrain, ""}, AttemptStopped{}), State(Queued{}));
  EXPECT_EQ(Next(Stopping{StopReason::kResize, ""}, AttemptStopped{}), State(Queued{}));
  const State failed =
      Next(Stopping{StopReason::kTimeLimit, "time limit of 1h reached"}, AttemptStopped{});
  EXPECT_EQ(failed,
            State(Failed{{FailureClass::kUserError, "TIME_LIMIT", "time limit of 1h reached"}}));
}

TEST(JobFsm, CancelOverridesEveryOtherStopAndIsNotOverridden) {
  const State cancelled = Stopping{StopReason::kCancel, ""};
  EXPECT_EQ(Next(Stopping{StopReason::kPreempt, ""}, Cancel{}), cancelled);
  EXPECT_EQ(Next(Stopping{StopReason::kTimeLimit, ""}, Cancel{}), cancelled);
  EXPECT_TRUE(std::holds_alternative<Refused>(Step(cancelled, Suspend{})));
  EXPECT_TRUE(std::holds_alternative<Refused>(Step(cancelled, Resume{})));
  EXPECT_TRUE(std::holds_alternative<Ignored>(Step(cancelled, Preempt{})));
  EXPECT_TRUE(std::holds_alternative<Ignored>(Step(cancelled, Cancel{})));
}

TEST(JobFsm, ResumeWhileBeingSuspendedQueuesAgain) {
  const State state = Next(Stopping{StopReason::kSuspend, ""}, Resume{});
  EXPECT_EQ(state, State(Stopping{StopReason::kPreempt, ""}));
  EXPECT_EQ(Next(state, AttemptStopped{}), State(Queued{}));
}

TEST(JobFsm, AFailureForGoodEndsAJobThatWasBeingPreemptedOrSuspended) {
  const AttemptFailed failed{.failure = {FailureClass::kUserError, "", "bad label"},
                             .give_up = true,
                             .hold = false,
                             .counts_as_retry = false,
                             .not_before_us = 0};
  EXPECT_EQ(Next(Stopping{StopReason::kPreempt, ""}, failed), State(Failed{failed.failure}));
  EXPECT_EQ(Next(Stopping{StopReason::kSuspend, ""}, failed), State(Failed{failed.failure}));
  EXPECT_EQ(Next(Stopping{StopReason::kCancel, ""}, failed), State(Cancelled{}));
}

TEST(JobFsm, ARetryIsCountedAndWaits) {
  const Result result = Step(Running{}, AttemptFailed{kPeerLost, false, false, true, 77});
  const auto& change = std::get<Change>(result);
  EXPECT_EQ(change.next, State(Queued{77, kPeerLost}));
  ASSERT_EQ(change.effects.size(), 1u);
  EXPECT_TRUE(std::holds_alternative<CountRetry>(change.effects[0]));
}

TEST(JobFsm, APoisonedJobIsHeldUntilAPersonResumesIt) {
  const Failure poison{FailureClass::kPoison, "CRASH", "rank 0 died of signal 11"};
  AttemptFailed failed;
  failed.failure = poison;
  failed.hold = true;
  const State held = Next(Running{}, failed);
  EXPECT_EQ(held, State(Suspended{poison}));
  EXPECT_EQ(Next(held, Resume{}), State(Queued{}));
  EXPECT_EQ(Next(held, Cancel{}), State(Cancelled{}));
  EXPECT_EQ(Next(Stopping{StopReason::kSuspend, ""}, failed), State(Suspended{poison}));
}

TEST(JobFsm, FinalStatesAreFinal) {
  const State finals[] = {Succeeded{}, Failed{kPeerLost}, Cancelled{}};
  const Input inputs[] = {
      Placed{},      AllRanksRunning{}, AttemptSucceeded{}, AttemptFailed{}, AttemptStopped{},
      AttemptLost{}, Cancel{},          Suspend{},          Resume{},        Preempt{},
      Drain{},       Resize{},          TimeLimit{}};
  for (const State& state : finals) {
    for (const Input& input : inputs) {
      EXPECT_FALSE(std::holds_alternative<Change>(Step(state, input)))
          << Name(state) << " input " << input.index();
    }
  }
}

}  // namespace
}  // namespace trainyard::core::job_fsm
