// Tests the forecast of when a waiting job will start.
#include "server/core/scheduling/forecast.h"

#include <gtest/gtest.h>

#include "tests/unit/server/core/scheduling/policy_fixture.h"

namespace trainyard::core {
namespace {

// Returns "60m: when jobs/1 ends, as expected", or the reason why it is unknown.
std::string Forecast(const World& world, int64_t id) {
  const Plan plan = world.MakePlan();
  const Explanation explanation = plan.record->Explain(world.Input(), *world.queue.Find(JobId{id}));
  if (!explanation.start_in_us.has_value()) return explanation.start_basis;
  return absl::StrCat(*explanation.start_in_us / kMinute, "m: ", explanation.start_basis);
}

TEST(Forecast, FollowsKnownEnds) {
  World world("a: 2xcpu=1; b: 2xcpu=2");
  world.Run(1, kHour);
  world.Run(2, 2 * kHour);
  world.Submit(Job(3, 2));
  world.Submit(Job(4, 2));
  EXPECT_EQ(Forecast(world, 3), "60m: when jobs/1 ends, as expected");
  EXPECT_EQ(Forecast(world, 4), "120m: when jobs/2 ends, as expected");
}

TEST(Forecast, JobsAheadRunAndEndToo) {
  World world("a: 2xcpu=1");
  world.Run(1, kHour);
  QueuedJob ahead = Job(2, 2);
  ahead.expected_us = kHour / 2;
  world.Submit(ahead);
  world.Submit(Job(3, 2));
  world.Submit(Job(4, 2));
  EXPECT_EQ(Forecast(world, 3), "90m: when jobs/2 ends, as expected");
  EXPECT_EQ(Forecast(world, 4),
            "jobs/3 has no known end: no time limit, it has not started, and no job like it has "
            "succeeded here");
}

TEST(Forecast, AJobThatHasNotStartedTakesAsLongAsOneLikeIt) {
  World world("a: 2xcpu=1");
  world.Run(1, kHour);
  // jobs/9 held a device for an hour in 2 epochs, so 6 epochs take 1.5 hours on 2 devices.
  world.speeds.Note(JobId{9}, {"resnet", 2}, kHour);
  QueuedJob ahead = Job(2, 2);
  ahead.work = {"resnet", 6};
  world.Submit(ahead);
  world.Submit(Job(3, 2));
  EXPECT_EQ(Forecast(world, 3),
            "150m: when jobs/2 ends, if it takes as long as jobs/9, a job like it");
  // It ends at its time limit at the latest.
  ahead.expected_us = kHour;
  world.Submit(ahead);
  EXPECT_EQ(Forecast(world, 3), "120m: when jobs/2 ends, as expected");
  ahead.expected_us = 0;
  ahead.work.key = "convnet";
  world.Submit(ahead);
  EXPECT_EQ(Forecast(world, 3),
            "jobs/2 has no known end: no time limit, it has not started, and no job like it has "
            "succeeded here");
}

TEST(Speeds, TheNewestJobOfAKindCountsAndUnknownOnesDoNot) {
  Speeds speeds;
  EXPECT_EQ(speeds.For({"a", 3}).device_us, 0);
  speeds.Note(JobId{1}, {"a", 2}, 10);
  speeds.Note(JobId{2}, {"a", 2}, 20);
  speeds.Note(JobId{3}, {"a", 0}, 90);
  speeds.Note(JobId{4}, {"", 2}, 90);
  EXPECT_EQ(speeds.For({"a", 3}).device_us, 30);
  EXPECT_EQ(speeds.For({"a", 3}).like, JobId{2});
  EXPECT_EQ(speeds.For({"", 3}).device_us, 0);
  EXPECT_GT(speeds.For({"a", int64_t{1} << 62}).device_us, 0);
}

TEST(Forecast, SaysWhoseEndIsUnknown) {
  World world("a: 2xcpu=1; b: h200=5");
  world.Run(1);
  world.Run(5);
  world.Submit(Job(2, 2, "cpu"));
  EXPECT_EQ(Forecast(world, 2), "jobs/1 has no known end: no time limit, and no progress yet");
  world.Submit(Job(3, 1, "cpu"));
  EXPECT_EQ(Forecast(world, 3),
            "jobs/2 is ahead, and when it starts is unknown: jobs/1 has no known end: no time "
            "limit, and no progress yet");
}

TEST(Forecast, OnlyJobsThatCompeteForItsDevicesCount) {
  World world("a: cpu=1; b: h200=5");
  world.Run(1);
  world.Run(5, kHour);
  world.Submit(Job(2, 1, "cpu"));
  world.Submit(Job(3, 1, "h200"));
  EXPECT_EQ(Forecast(world, 3), "60m: when jobs/5 ends, as expected");
}

TEST(Forecast, AHeldJobStartsWhenItsHoldsAreOverAndDevicesAreFree) {
  World world("a: 2xcpu=1");
  world.Run(1, kHour);
  QueuedJob held = Job(2, 2);
  held.holds = {"is not to start before 18:00"};
  held.release.not_before_us = world.now.wall_us + 2 * kHour;
  world.Submit(held);
  EXPECT_EQ(Forecast(world, 2), "120m: not before 18:00 UTC");
  // Devices may be free later than that.
  held.release.not_before_us = world.now.wall_us + kHour / 2;
  world.Submit(held);
  EXPECT_EQ(Forecast(world, 2), "60m: when jobs/1 ends, as expected");
  held.release = {.after = {JobId{1}}};
  world.Submit(held);
  EXPECT_EQ(Forecast(world, 2), "60m: after jobs/1, if it ends when it is expected to");
  held.release.needs_success = true;
  held.release.not_before_us = world.now.wall_us + kHour / 2;
  world.Submit(held);
  EXPECT_EQ(Forecast(world, 2), "60m: after jobs/1, if it succeeds when it is expected to");
}

TEST(Forecast, AHeldJobMayWaitForOneThatHasNotStarted) {
  World world("a: 2xcpu=1");
  world.Run(1, kHour);
  QueuedJob first = Job(2, 2);
  first.expected_us = kHour / 2;
  world.Submit(first);
  QueuedJob held = Job(3, 1);
  held.holds = {"waits for jobs/2"};
  held.release = {.after = {JobId{2}}};
  world.Submit(held);
  EXPECT_EQ(Forecast(world, 3), "90m: after jobs/2, if it ends when it is expected to");
  first.expected_us = 0;
  world.Submit(first);
  EXPECT_EQ(Forecast(world, 3), "after jobs/2, whose end is not known yet");
  held.release.never_comes = true;
  world.Submit(held);
  EXPECT_EQ(Forecast(world, 3), "what it waits for never comes");
}

TEST(Forecast, HasNothingToSayOfHeldInfeasibleAndOverQuotaJobs) {
  World world("a: cpu=1");
  world.Run(1, kHour);
  QueuedJob held = Job(2, 1);
  held.holds = {"waits"};
  world.Submit(held);
  EXPECT_EQ(Forecast(world, 2), "it may not start yet, whatever is free");
  world.Submit(Job(3, 2));
  EXPECT_EQ(Forecast(world, 3), "the pool as it is can never hold it");
  world.quotas["user:anna"] = {.subject = "user:anna", .devices = 1};
  world.Submit(Job(4, 1));
  EXPECT_EQ(Forecast(world, 4), "it waits for room in a quota or in its array");
}

TEST(Forecast, AnEmptyPoolWaitsForItsFirstWorker) {
  World world("");
  world.Submit(Job(1, 2));
  EXPECT_EQ(Forecast(world, 1), "it starts when a worker joins that can hold it");
  EXPECT_FALSE(world.MakePlan().record->Explain(world.Input(), Job(1, 2)).infeasible);
}

}  // namespace
}  // namespace trainyard::core
