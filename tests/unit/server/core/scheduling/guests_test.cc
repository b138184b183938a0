// Tests guests, which are jobs on devices that other jobs keep.
#include <gtest/gtest.h>

#include "server/core/scheduling/backfill.h"
#include "tests/unit/server/core/scheduling/policy_fixture.h"

namespace trainyard::core {
namespace {

QueuedJob MayGo(int64_t id, int32_t count) {
  QueuedJob job = Job(id, count);
  job.preemptible = true;
  return job;
}

TEST(Guests, TakeWhatAHeadKeepsAndCannotUseSoon) {
  World world("a: 3xcpu=1 cpu");
  world.Run(1, kHour);
  world.Submit(Job(2, 4));
  world.Submit(Job(3, 1));
  world.Submit(MayGo(4, 1));
  const Plan plan = world.MakePlan();
  EXPECT_EQ(Text(plan), "place 4 on a:cpu-3") << "jobs/3 may not be preempted";
  ASSERT_EQ(plan.placements.size(), 1u);
  EXPECT_EQ(plan.placements[0].guest_of, JobId{2});
  EXPECT_EQ(Text(world.MakePlan({.guests = false})), "");
  EXPECT_EQ(Text(world.MakePlan({.backfill = false})), "");
  EXPECT_EQ(Text(world.MakePlan({.preemption = false})), "");
}

TEST(Guests, AreNoneWhereTheyEndInTime) {
  World world("a: 3xcpu=1 cpu");
  world.Run(1, kHour);
  world.Submit(Job(2, 4));
  QueuedJob brief = MayGo(3, 1);
  brief.expected_us = kHour / 2;
  world.Submit(brief);
  const Plan plan = world.MakePlan();
  ASSERT_EQ(plan.placements.size(), 1u);
  EXPECT_EQ(plan.placements[0].guest_of, JobId{});
}

TEST(Guests, AreNotTakenInShortlyBeforeTheHeadStarts) {
  World world("a: 3xcpu=1 cpu");
  const int64_t least_us = world.config.min_runtime_us + world.config.checkpoint_wait_us;
  world.Run(1, least_us);
  world.Submit(Job(2, 4));
  world.Submit(MayGo(3, 1));
  EXPECT_EQ(Text(world.MakePlan()), "place 3 on a:cpu-3");
  world.running[JobId{1}].end_us = world.now.uptime_us + least_us - 1;
  EXPECT_EQ(Text(world.MakePlan()), "");
}

TEST(Guests, GoAsSoonAsTheHeadFits) {
  World world("a: cpu=1 cpu=3 2xcpu");
  world.Run(1, kHour);
  world.Run(3).guest = true;
  world.Submit(Job(2, 4));
  EXPECT_EQ(Text(world.MakePlan()), "") << "it would still not fit";
  world.End(JobId{1});
  EXPECT_EQ(Text(world.MakePlan()), "preempt for 2 on a:cpu-0 a:cpu-1 a:cpu-2 a:cpu-3, stop 3");
  world.running[JobId{3}].guest = false;
  EXPECT_EQ(Text(world.MakePlan()), "");
}

TEST(Guests, GoForNobodyBehindTheHeadAndForNobodyOfASmallerPriority) {
  World world("a: 2xcpu=1 cpu=3");
  world.Run(1, kHour);
  world.Run(3).guest = true;
  world.Submit(Job(2, 3));
  world.Submit(Job(4, 1));
  EXPECT_EQ(Text(world.MakePlan()), "") << "jobs/2 waits for the device, jobs/4 comes later";
  world.End(JobId{1});
  world.running[JobId{3}].priority = 1;
  EXPECT_EQ(Text(world.MakePlan()), "");
}

TEST(Guests, LetTheHeadStartNoLaterThanTheyNeedToGo) {
  World world("a: cpu=1 cpu=3");
  world.Run(1, kHour);
  world.Run(3).guest = true;  // of unknown end
  world.Submit(Job(2, 2));
  QueuedJob brief = Job(5, 1);
  brief.expected_us = kHour / 2;
  world.Submit(brief);
  EXPECT_EQ(Text(world.MakePlan()), "");
  world.End(JobId{3});
  EXPECT_EQ(Text(world.MakePlan()), "place 5 on a:cpu-1") << "the head starts in an hour";
}

// With more devices the guest ends sooner, and with it the head's wait.
TEST(Guests, AnElasticJobGrowsOnWhatAHeadKeepsThatWaitsForItsVeryEnd) {
  World world("a: cpu=1 cpu=5 3xcpu");
  RunningJob& elastic = world.Run(1, 2 * kHour);
  elastic.demand.min_count = 1;
  elastic.demand.count = 3;
  world.Run(5, kHour);
  world.Submit(Job(2, 5));
  EXPECT_EQ(Text(world.MakePlan()), "grow 1 to a:cpu-0 a:cpu-2 a:cpu-3");
  world.running[JobId{5}].end_us = world.now.uptime_us + 3 * kHour;
  EXPECT_EQ(Text(world.MakePlan()), "") << "jobs/2 waits for jobs/5";
}

TEST(Guests, OfAGangOfOneHostLeaveItsHost) {
  World world("a: 2xcpu=1 cpu=2; b: 2xcpu=3");
  world.Run(1).may_preempt = false;
  for (const int64_t id : {2, 3}) {
    RunningJob& guest = world.Run(id);
    guest.guest = true;
    guest.at_risk_us = id * kMinute;
  }
  QueuedJob head = Job(4, 3);
  head.demand.one_host = true;
  world.Submit(head);
  EXPECT_EQ(Text(world.MakePlan()), "") << "it does not fit if they go";
  world.End(JobId{1});
  EXPECT_EQ(Text(world.MakePlan()), "preempt for 4 on a:cpu-0 a:cpu-1 a:cpu-2, stop 2");
}

}  // namespace
}  // namespace trainyard::core
