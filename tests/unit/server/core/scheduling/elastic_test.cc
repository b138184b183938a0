// Tests jobs that shrink and grow.
#include "server/core/scheduling/elastic.h"

#include <gtest/gtest.h>

#include "tests/unit/server/core/scheduling/policy_fixture.h"

namespace trainyard::core {
namespace {

RunningJob& RunElastic(World& world, int64_t id, int32_t least, int32_t most) {
  RunningJob& job = world.Run(id);
  job.demand.min_count = least;
  job.demand.count = most;
  return job;
}

TEST(Elastic, GrowsOnDevicesThatNobodyWaitsFor) {
  World world("a: 2xcpu=1 cpu; b: 4xcpu");
  RunElastic(world, 1, 1, 4);
  const Plan plan = world.MakePlan();
  EXPECT_EQ(Text(plan), "grow 1 to a:cpu-0 a:cpu-1 a:cpu-2 b:cpu-0") << "near ones first";
  EXPECT_EQ(Text(world.MakePlan({.elastic = false})), "");
  world.Carry(plan);
  EXPECT_EQ(Text(world.MakePlan()), "") << "it is on its way";
  world.End(JobId{1}, /*again=*/true);
  world.Submit(Job(2, 5));
  EXPECT_EQ(Text(world.MakePlan()), "place 1 on a:cpu-0 a:cpu-1 a:cpu-2 b:cpu-0");
}

TEST(Elastic, DoesNotGrowWhereAWaitingJobCouldUseTheDevices) {
  World world("a: 2xcpu=1 2xcpu; b: h200=5 h200");
  RunElastic(world, 1, 1, 4);
  world.Run(5);
  world.Submit(Job(2, 2, "h200"));
  EXPECT_EQ(Text(world.MakePlan()), "grow 1 to a:cpu-0 a:cpu-1 a:cpu-2 a:cpu-3");
  world.Submit(Job(3, 4, "cpu"));
  EXPECT_EQ(Text(world.MakePlan()), "");
  world.queue.Remove(JobId{3});
  world.quotas["user:anna"] = {.subject = "user:anna", .devices = 4};
  world.Submit(Job(4, 2, "cpu"));
  EXPECT_EQ(Text(world.MakePlan()), "grow 1 to a:cpu-0 a:cpu-1 a:cpu-2")
      << "jobs/4 is over its quota: it could not use them, and jobs/1 stays within";
}

TEST(Elastic, DoesNotGrowSoonAfterAChange) {
  World world("a: 2xcpu=1 2xcpu");
  RunElastic(world, 1, 1, 4).since_us = world.now.uptime_us - world.config.grow_after_us + 1;
  EXPECT_EQ(Text(world.MakePlan()), "");
  world.now.uptime_us += 1;
  EXPECT_EQ(Text(world.MakePlan()), "grow 1 to a:cpu-0 a:cpu-1 a:cpu-2 a:cpu-3");
}

TEST(Elastic, StaysOnItsTypeUnlessMixed) {
  World world("a: 2xgtx=1; b: 2xtitan");
  RunElastic(world, 1, 1, 4);
  EXPECT_EQ(Text(world.MakePlan()), "");
  world.running[JobId{1}].demand.mixed = true;
  EXPECT_EQ(Text(world.MakePlan()), "grow 1 to a:gtx-0 a:gtx-1 b:titan-0 b:titan-1");
}

TEST(Elastic, WhoHasHadLeastGrowsFirst) {
  World world("a: cpu=1 cpu=2 cpu");
  RunElastic(world, 1, 1, 4).user = "anna";
  RunElastic(world, 2, 1, 4).user = "ben";
  world.usage[{"", "anna"}] = {"", "anna", kHour};
  EXPECT_EQ(Text(world.MakePlan()), "grow 2 to a:cpu-1 a:cpu-2");
  world.running[JobId{1}].priority = 1;
  EXPECT_EQ(Text(world.MakePlan()), "grow 1 to a:cpu-0 a:cpu-2");
}

TEST(Elastic, WithoutItAJobTakesTheMostThatItAsksFor) {
  World world("a: 3xcpu");
  QueuedJob job = Job(1, 4);
  job.demand.min_count = 2;
  world.Submit(job);
  EXPECT_EQ(Text(world.MakePlan()), "place 1 on a:cpu-0 a:cpu-1 a:cpu-2");
  EXPECT_EQ(Text(world.MakePlan({.elastic = false})), "");
}

}  // namespace
}  // namespace trainyard::core
