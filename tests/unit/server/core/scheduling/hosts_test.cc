// Tests how the processors and the memory of hosts are divided among ranks, with devices and
// without.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/server/core/scheduling/policy_fixture.h"

namespace trainyard::core {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kGiB = int64_t{1} << 30;

QueuedJob Deviceless(int64_t id, int32_t cpus, int64_t memory_bytes = 0) {
  QueuedJob job = Job(id, 1);
  job.demand.is_deviceless = true;
  job.demand.resources = {cpus, memory_bytes};
  return job;
}

QueuedJob WithCpus(int64_t id, int32_t devices, int32_t cpus) {
  QueuedJob job = Job(id, devices);
  job.demand.resources.cpus = cpus;
  return job;
}

TEST(Hosts, ARankHoldsTheShareOfItsDevice) {
  World world("a: 4xh200");
  world.DivideHosts(16);
  world.Submit(Job(1, 2));
  const Plan plan = world.MakePlan();
  ASSERT_EQ(Text(plan), "place 1 on a:h200-0 a:h200-1");
  EXPECT_EQ(plan.placements[0].ranks[1].held, (HostAmount{4, 4 * kGiB}));
}

TEST(Hosts, AWorkerThatHasNotToldIsNotDivided) {
  World world("a: 4xh200");
  world.Submit(WithCpus(1, 2, 100));
  world.Submit(Deviceless(2, 1));
  const Plan plan = world.MakePlan();
  ASSERT_EQ(Text(plan), "place 1 on a:h200-0 a:h200-1");
  EXPECT_TRUE(plan.placements[0].ranks[0].held.empty());
  EXPECT_THAT(plan.record->Reasons(world.Input(), JobId{2}),
              Contains(HasSubstr("it can never start here")));
}

TEST(Hosts, ManyProcessorsOnOneDeviceLeaveOthersWithoutAny) {
  World world("a: 4xh200");
  world.DivideHosts(16);
  world.Submit(WithCpus(1, 1, 11));
  world.Submit(Job(2, 1));
  world.Submit(Job(3, 1));
  const Plan plan = world.MakePlan();
  EXPECT_EQ(Text(plan), "place 1 on a:h200-0; place 2 on a:h200-1");
  world.Carry(plan);
  const Plan next = world.MakePlan();
  EXPECT_EQ(Text(next), "");
  EXPECT_THAT(next.record->Reasons(world.Input(), JobId{3}),
              Contains("1 cpu is free on a, 4 are needed"));
  const Explanation explanation = next.record->Explain(world.Input(), *world.queue.Find(JobId{3}));
  EXPECT_EQ(explanation.change, (SpecFields{{"resources.cpus", "1"}}));
  EXPECT_THAT(explanation.change_text, HasSubstr("with 1 cpu"));
}

TEST(Hosts, AGangGoesWhereEachRankHasWhatItAsksFor) {
  World world("a: 4xh200; b: 4xh200");
  world.DivideHosts(16);
  world.Submit(WithCpus(1, 3, 6));
  EXPECT_EQ(Text(world.MakePlan()), "place 1 on a:h200-0 a:h200-1 b:h200-0");
}

TEST(Hosts, AGangThatNoHostsHoldIsRefusedWithTheReason) {
  World world("a: 4xh200");
  world.DivideHosts(16);
  world.Submit(WithCpus(1, 3, 6));
  const Plan plan = world.MakePlan();
  EXPECT_EQ(Text(plan), "");
  EXPECT_TRUE(plan.record->Explain(world.Input(), *world.queue.Find(JobId{1})).infeasible);
}

TEST(Hosts, AJobWithoutADeviceTakesWhatDevicesLeaveFree) {
  World world("a: 4xcpu");
  world.DivideHosts(4);
  world.Submit(Job(1, 2));
  world.Submit(Deviceless(2, 1));
  world.Submit(Job(3, 1));
  world.Submit(Deviceless(4, 1));
  const Plan plan = world.MakePlan();
  EXPECT_EQ(Text(plan), "place 1 on a:cpu-0 a:cpu-1; place 2 on a:; place 3 on a:cpu-2");
  EXPECT_EQ(plan.placements[1].ranks[0].held, (HostAmount{1, kGiB}));
  world.Carry(plan);
  const Plan next = world.MakePlan();
  EXPECT_THAT(next.record->Reasons(world.Input(), JobId{4}),
              Contains("0 cpus are free on a, 1 is needed"));
}

TEST(Hosts, MemoryIsDividedToo) {
  World world("a: 2xcpu");
  world.DivideHosts(8);
  world.Submit(Deviceless(1, 1, 6 * kGiB));
  world.Submit(Deviceless(2, 1, 3 * kGiB));
  const Plan plan = world.MakePlan();
  EXPECT_EQ(Text(plan), "place 1 on a:");
  const Explanation explanation = plan.record->Explain(world.Input(), *world.queue.Find(JobId{2}));
  EXPECT_THAT(explanation.reasons, Contains("2.0 GiB of memory is free on a, 3.0 GiB is needed"));
  EXPECT_EQ(explanation.change.at(0).first, "resources.memory");
}

TEST(Hosts, TheFirstThatWaitsIsNotStarvedBySmallOnes) {
  World world("a: 2xcpu");
  world.DivideHosts(8);
  world.Submit(Deviceless(1, 6));
  world.Carry(world.MakePlan());
  world.running.at(JobId{1}).end_us = world.now.uptime_us + kHour;
  world.Submit(Deviceless(2, 8));
  QueuedJob small = Deviceless(3, 1);
  world.Submit(small);
  QueuedJob brief = Deviceless(4, 1);
  brief.expected_us = kMinute;
  world.Submit(brief);
  EXPECT_EQ(Text(world.MakePlan()), "place 4 on a:") << "it ends before jobs/2 can start";
}

TEST(Hosts, AnUrgentJobStopsOneThatHoldsItsProcessors) {
  World world("a: 2xh200");
  world.DivideHosts(8);
  world.Submit(Deviceless(1, 6));
  world.Carry(world.MakePlan());
  world.running.at(JobId{1}).may_preempt = true;
  QueuedJob urgent = Job(2, 1);
  urgent.priority = 1;
  world.Submit(urgent);
  const Plan plan = world.MakePlan();
  EXPECT_EQ(Text(plan), "preempt for 2 on a:h200-0, stop 1");
  world.Carry(plan);
  world.Submit(Deviceless(3, 2));
  EXPECT_EQ(Text(world.MakePlan()), "")
      << "jobs/2 waits for jobs/1, and jobs/3 takes nothing of it";
  world.End(JobId{1});
  EXPECT_EQ(Text(world.MakePlan()), "place 2 on a:h200-0; place 3 on a:");
}

TEST(Hosts, AQuotaLimitsProcessorsAndMemory) {
  World world("a: 4xh200");
  world.DivideHosts(16);
  world.quotas["user:anna"] = {.subject = "user:anna", .held = {6, 0}};
  world.Submit(Deviceless(1, 3));
  world.Submit(Job(2, 1));
  const Plan plan = world.MakePlan();
  EXPECT_EQ(Text(plan), "place 1 on a:");
  EXPECT_THAT(plan.record->Reasons(world.Input(), JobId{2}),
              Contains("needs 4 cpus; user anna holds 3 of at most 6 (quota user:anna)"));
}

TEST(Hosts, ARankWithoutADeviceCountsAsThePartOfOneThatItHolds) {
  EXPECT_EQ(MilliDevices({8, 64 * kGiB}, {2, 8 * kGiB}), 250);
  EXPECT_EQ(MilliDevices({8, 64 * kGiB}, {1, 32 * kGiB}), 500) << "the larger part counts";
  EXPECT_EQ(MilliDevices({}, {1, 0}), 1000);
}

}  // namespace
}  // namespace trainyard::core
