// Tests the typical histories of an attempt.
#include "server/core/lifecycle/attempt_fsm.h"

#include <gtest/gtest.h>

namespace trainyard::core::attempt_fsm {
namespace {

using Change = Transition<State, Effect>;

const Failure kPeerLost{FailureClass::kTransient, "PEER_LOST", "peer lost"};
const Failure kBadLabel{FailureClass::kUserError, "BAD_LABEL", "label 11 of 10"};
const Failure kAway{FailureClass::kLost, "WORKER_LOST", "away"};

State Next(const State& state, const Input& input) {
  const Result result = Step(state, input);
  EXPECT_TRUE(std::holds_alternative<Change>(result)) << "no transition from " << Name(state);
  return std::holds_alternative<Change>(result) ? std::get<Change>(result).next : state;
}

TEST(AttemptFsm, RunsAndSucceeds) {
  State state = Next(Placed{}, RanksSeen{});
  state = Next(state, AllRanksRunning{});
  EXPECT_EQ(Next(state, AllGone{true}), State(Succeeded{}));
}

TEST(AttemptFsm, AShortAttemptSucceedsBetweenTwoReports) {
  EXPECT_EQ(Next(Placed{}, AllGone{true}), State(Succeeded{}));
}

TEST(AttemptFsm, AFailedPartStopsTheGangBeforeTheAttemptFails) {
  const State stopping = Next(Running{}, PartFailed{kPeerLost});
  EXPECT_EQ(stopping, State(Stopping{StopReason::kNone, kPeerLost}));
  EXPECT_EQ(Next(stopping, AllGone{false}), State(Failed{kPeerLost}));
}

TEST(AttemptFsm, TheFailureThatNamesTheCauseWins) {
  const State stopping = Next(Next(Running{}, PartFailed{kPeerLost}), PartFailed{kBadLabel});
  EXPECT_EQ(Next(stopping, AllGone{false}), State(Failed{kBadLabel}));
  EXPECT_TRUE(std::holds_alternative<Ignored>(Step(stopping, PartFailed{kPeerLost})));
}

TEST(AttemptFsm, LossEndsAsLost) {
  EXPECT_EQ(Next(Next(Placed{}, PartFailed{kAway}), AllGone{false}), State(Lost{kAway}));
}

TEST(AttemptFsm, AFailureWhileStoppingDoesNotChangeWhyItStopped) {
  const State stopping = Next(Running{}, Stop{StopReason::kCancel});
  EXPECT_TRUE(std::holds_alternative<Ignored>(Step(stopping, PartFailed{kPeerLost})));
  EXPECT_EQ(Next(stopping, AllGone{false}), State(Cancelled{}));
}

TEST(AttemptFsm, ALaterReasonReplacesAnEarlierOne) {
  const State stopping =
      Next(Next(Running{}, Stop{StopReason::kPreempt}), Stop{StopReason::kCancel});
  EXPECT_EQ(Next(stopping, AllGone{false}), State(Cancelled{}));
  EXPECT_EQ(Next(Stopping{StopReason::kDrain, {}}, AllGone{false}),
            State(Preempted{StopReason::kDrain}));
}

TEST(AttemptFsm, SuccessOfAllPartsBeforeTheStopCounts) {
  EXPECT_EQ(Next(Stopping{StopReason::kCancel, {}}, AllGone{true}), State(Succeeded{}));
}

TEST(AttemptFsm, TheEndIsToldOnce) {
  const Result result = Step(Running{}, AllGone{true});
  EXPECT_EQ(std::get<Change>(result).effects.size(), 1u);
  for (const State& state :
       {State(Succeeded{}), State(Failed{kPeerLost}), State(Preempted{StopReason::kDrain}),
        State(Cancelled{}), State(Lost{kAway})}) {
    EXPECT_TRUE(IsFinal(state));
    EXPECT_TRUE(std::holds_alternative<Ignored>(Step(state, AllGone{true}))) << Name(state);
    EXPECT_TRUE(std::holds_alternative<Ignored>(Step(state, Stop{StopReason::kCancel})));
  }
}

}  // namespace
}  // namespace trainyard::core::attempt_fsm
