// Tests the two state machines of a worker.
#include "server/core/lifecycle/worker_fsm.h"

#include <gtest/gtest.h>

namespace trainyard::core::worker_fsm {
namespace {

using Change = Transition<State, Effect>;

TEST(WorkerFsm, UnreachableIsNotGoneUntilGivenUp) {
  const State unreachable = std::get<Change>(Step(State(Active{}), LeaseExpired{7})).next;
  EXPECT_EQ(unreachable, State(Unreachable{7}));
  EXPECT_EQ(std::get<Change>(Step(unreachable, Synced{})).next, State(Active{}));
  EXPECT_EQ(std::get<Change>(Step(unreachable, GaveUp{9})).next, State(Gone{9}));
}

TEST(WorkerFsm, AGoneWorkerComesBackByTheFirstSyncOfItsNextSession) {
  EXPECT_EQ(std::get<Change>(Step(State(Gone{1}), Synced{})).next, State(Active{}));
}

TEST(WorkerFsm, GoneEndsTheSession) {
  const Result result = Step(State(Unreachable{1}), GaveUp{2});
  bool ended = false;
  for (const Effect& effect : std::get<Change>(result).effects) {
    ended = ended || std::holds_alternative<EndSession>(effect);
  }
  EXPECT_TRUE(ended);
}

TEST(WorkerFsm, DrainStopsWhatRunsAndCordonDoesNot) {
  using SchedulingChange = Transition<SchedulingState, SchedulingEffect>;
  const SchedulingResult cordoned = Step(SchedulingState(Eligible{}), Cordon{});
  const SchedulingResult draining = Step(SchedulingState(Cordoned{}), Drain{});
  EXPECT_TRUE(std::holds_alternative<PlanAgain>(std::get<SchedulingChange>(cordoned).effects[0]));
  EXPECT_TRUE(
      std::holds_alternative<StopAttempts>(std::get<SchedulingChange>(draining).effects[0]));
  EXPECT_EQ(FromState(std::get<SchedulingChange>(draining).next), Scheduling::kDraining);
}

}  // namespace
}  // namespace trainyard::core::worker_fsm
