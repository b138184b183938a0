// Tests what people may ask of a sweep: to stop, to go on, to be cancelled, to run failed trials
// again.
#include "tests/unit/server/core/sweeping/sweep_fixture.h"

namespace trainyard::core::sweeping {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Requests, AStoppedSweepPausesItsTrialsAndGoesOnLater) {
  Sweep sweep({.trials = 4, .concurrent = 2});
  sweep.Run();
  EXPECT_THAT(sweep.Ask(EntryKind::kStopRequested), ElementsAre("pause 0", "pause 1"));
  EXPECT_TRUE(sweep.state().is_stopping());
  EXPECT_THAT(sweep.Hold(0, 5), IsEmpty());
  EXPECT_THAT(sweep.Fail(1), IsEmpty()) << "nothing starts";
  EXPECT_THAT(sweep.Ask(EntryKind::kResumeRequested), ElementsAre("continue 0 to 0", "start 2"));
  EXPECT_FALSE(sweep.state().is_stopping());
}

TEST(Requests, AStoppedSweepDoesNotEnd) {
  Sweep sweep({.trials = 1, .target = 0.5});
  sweep.Run();
  sweep.Ask(EntryKind::kStopRequested);
  EXPECT_THAT(sweep.Succeed(0, 0.9), IsEmpty());
  EXPECT_FALSE(sweep.state().has_ended());
  EXPECT_THAT(sweep.Ask(EntryKind::kResumeRequested),
              ElementsAre("succeeded: trial 0 has reached the target of 0.5"));
}

TEST(Requests, InterruptedTrialsGoOnBeforeOthersArePromoted) {
  Sweep sweep({.search = Search::kAsha, .trials = 6, .concurrent = 2, .factor = 2, .rungs = 2});
  sweep.Run();
  sweep.Ask(EntryKind::kStopRequested);
  EXPECT_THAT(sweep.Report(0, 0.5), IsEmpty()) << "it ran past";
  EXPECT_THAT(sweep.Ask(EntryKind::kResumeRequested), ElementsAre("continue 1 to 0", "start 2"));
  EXPECT_THAT(sweep.Report(1, 0.4), ElementsAre("pause 1", "continue 0 to 1"));
}

TEST(Requests, ACancelledSweepEndsAndIsNotRevivedByResume) {
  Sweep sweep({.trials = 4, .concurrent = 2});
  sweep.Run();
  sweep.Succeed(0, 0.5);
  EXPECT_THAT(sweep.Ask(EntryKind::kCancelRequested),
              ElementsAre("stop 1: the sweep was cancelled by ann",
                          "stop 2: the sweep was cancelled by ann",
                          "stopped: the sweep was cancelled by ann"));
  EXPECT_FALSE(sweep.Take({.kind = EntryKind::kResumeRequested}));
  EXPECT_THAT(sweep.Run(), IsEmpty());
}

TEST(Requests, AStoppedSweepCanBeCancelled) {
  Sweep sweep({.trials = 4, .concurrent = 2});
  sweep.Run();
  sweep.Ask(EntryKind::kStopRequested);
  EXPECT_THAT(sweep.After({.kind = EntryKind::kCancelRequested}),
              ElementsAre("stop 0: the sweep was cancelled", "stop 1: the sweep was cancelled",
                          "stopped: the sweep was cancelled"));
}

TEST(Requests, FailedTrialsRunAgainAsPlacesBecomeFree) {
  Sweep sweep({.trials = 5, .concurrent = 2});
  sweep.Run();
  sweep.Fail(0);
  sweep.Fail(1);
  EXPECT_THAT(sweep.Ask(EntryKind::kRetryRequested), IsEmpty()) << "no place is free";
  EXPECT_THAT(sweep.Succeed(2, 0.5), ElementsAre("restart 0"));
  EXPECT_THAT(sweep.Fail(0), ElementsAre("restart 1")) << "it had its retry";
  EXPECT_THAT(sweep.Succeed(1, 0.6), ElementsAre("start 4"));
}

TEST(Requests, ARetryWaitsForASweepThatWasStopped) {
  Sweep sweep({.trials = 2, .concurrent = 2});
  sweep.Run();
  sweep.Fail(0);
  sweep.Ask(EntryKind::kStopRequested);
  EXPECT_THAT(sweep.Ask(EntryKind::kRetryRequested), IsEmpty());
  EXPECT_THAT(sweep.Ask(EntryKind::kResumeRequested), ElementsAre("continue 1 to 0", "restart 0"));
}

TEST(Requests, ARetryReopensASweepThatHasEnded) {
  Sweep sweep({.trials = 2, .concurrent = 2});
  sweep.Run();
  sweep.Fail(0);
  EXPECT_THAT(sweep.Succeed(1, 0.5), ElementsAre("succeeded: all trials have ended"));
  EXPECT_THAT(sweep.Ask(EntryKind::kRetryRequested), ElementsAre("restart 0"));
  EXPECT_THAT(sweep.Succeed(0, 0.7), ElementsAre("succeeded: all trials have ended"));
  EXPECT_EQ(sweep.state().best(), 0);
}

TEST(Requests, AReopenedSweepRunsItsFailedTrialsOnly) {
  for (const EntryKind kind : {EntryKind::kCancelRequested, EntryKind::kSucceeded}) {
    Sweep sweep({.trials = 20, .concurrent = 2, .target = 0.9, .patience = 3});
    sweep.Run();
    sweep.Fail(0);
    sweep.After({.kind = kind, .trial = 1, .value = 0.9});
    ASSERT_TRUE(sweep.state().has_ended());
    EXPECT_THAT(sweep.Ask(EntryKind::kRetryRequested), ElementsAre("restart 0"));
    EXPECT_THAT(sweep.Succeed(0, 0.5), ElementsAre("succeeded: all trials have ended"));
  }
}

TEST(Requests, AReopenedSweepHasPatience) {
  Sweep sweep({.trials = 20, .patience = 2});
  sweep.Run();
  sweep.Succeed(0, 0.5);
  sweep.Fail(1);
  sweep.Succeed(2, 0.4);
  sweep.Succeed(3, 0.3);
  ASSERT_TRUE(sweep.state().has_ended());
  EXPECT_THAT(sweep.Ask(EntryKind::kRetryRequested), ElementsAre("restart 1"));
  EXPECT_THAT(sweep.Succeed(1, 0.3), ElementsAre("succeeded: all trials have ended"));
}

TEST(Requests, AReopenedSweepEndsAtItsTargetAgain) {
  Sweep sweep({.trials = 3, .concurrent = 3, .target = 0.9});
  sweep.Run();
  sweep.Fail(0);
  sweep.Fail(1);
  sweep.Succeed(2, 0.95);
  EXPECT_THAT(sweep.Ask(EntryKind::kRetryRequested), ElementsAre("restart 0", "restart 1"));
  EXPECT_THAT(sweep.Succeed(1, 0.95),
              ElementsAre("stop 0: trial 1 has reached the target of 0.9",
                          "succeeded: trial 1 has reached the target of 0.9"));
}

TEST(Requests, AReopenedSweepCanBeCancelled) {
  Sweep sweep({.trials = 2});
  sweep.Run();
  sweep.Fail(0);
  sweep.Fail(1);
  sweep.Ask(EntryKind::kRetryRequested);
  EXPECT_THAT(sweep.Ask(EntryKind::kCancelRequested),
              Contains("stopped: the sweep was cancelled by ann"));
  EXPECT_FALSE(sweep.state().is_retrying());
  EXPECT_THAT(sweep.Ask(EntryKind::kRetryRequested), ElementsAre("restart 1"))
      << "trial 0 was stopped";
}

}  // namespace
}  // namespace trainyard::core::sweeping
