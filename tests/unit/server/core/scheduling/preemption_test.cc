// Tests which job is stopped for which, and nominated jobs.
#include "server/core/scheduling/preemption.h"

#include <gtest/gtest.h>

#include "tests/unit/server/core/scheduling/policy_fixture.h"

namespace trainyard::core {
namespace {

QueuedJob Urgent(int64_t id, int32_t count, const std::string& type = "") {
  QueuedJob job = Job(id, count, type);
  job.priority = 10;
  return job;
}

TEST(Preemption, NominatesVictimsThatLoseLeastWork) {
  World world("a: 2xcpu=1; b: 2xcpu=2");
  world.Run(1).at_risk_us = 9 * kMinute;
  world.Run(2).at_risk_us = 2 * kMinute;
  world.Submit(Urgent(3, 2));
  EXPECT_EQ(Text(world.MakePlan()), "preempt for 3 on b:cpu-0 b:cpu-1, stop 2");
  EXPECT_EQ(Text(world.MakePlan({.preemption = false})), "");
}

TEST(Preemption, UsesFreeDevicesTooAndStopsNobodyWithoutNeed) {
  World world("a: cpu cpu=1 3xcpu=2");
  world.Run(1).at_risk_us = kMinute;      // 1 device: a minute of work
  world.Run(2).at_risk_us = 2 * kMinute;  // 3 devices: six
  world.Submit(Urgent(3, 4));
  // jobs/1 comes first as a victim, but once jobs/2 has to stop, stopping that one suffices.
  EXPECT_EQ(Text(world.MakePlan()), "preempt for 3 on a:cpu-0 a:cpu-2 a:cpu-3 a:cpu-4, stop 2");
}

TEST(Preemption, OnlyOfSmallerPriorityAndOnlyWhoMayBe) {
  World world("a: cpu=1; b: cpu=2");
  world.Run(1).priority = 10;
  world.Run(2).may_preempt = false;
  world.Submit(Urgent(3, 1));
  EXPECT_EQ(Text(world.MakePlan()), "");
  world.running[JobId{2}].may_preempt = true;
  EXPECT_EQ(Text(world.MakePlan()), "preempt for 3 on b:cpu-0, stop 2");
}

TEST(Preemption, IfItWouldStillNotFitNobodyGoes) {
  World world("a: cpu=1; b: cpu=2");
  world.Run(1);
  world.Run(2).priority = 10;
  world.Submit(Urgent(3, 2));
  EXPECT_EQ(Text(world.MakePlan()), "");
}

TEST(Preemption, WaitsForThoseOnTheirWayOut) {
  World world("a: cpu=1; b: cpu=2");
  world.Run(1);
  world.Run(2).stops = true;
  world.Submit(Urgent(3, 1));
  EXPECT_EQ(Text(world.MakePlan()), "");
  world.queue.Remove(JobId{3});
  world.Submit(Urgent(3, 2));
  EXPECT_EQ(Text(world.MakePlan()), "preempt for 3 on a:cpu-0 b:cpu-0, stop 1");
}

TEST(Preemption, ANominationIsNotMadeTwiceAndEndsWithThePlacement) {
  World world("a: 2xcpu=1; b: 2xcpu=2; c: cpu");
  world.Run(1);
  world.Run(2);
  world.Submit(Urgent(3, 3));
  world.Submit(Job(4, 1));
  const Plan first = world.MakePlan();
  EXPECT_EQ(Text(first), "preempt for 3 on b:cpu-0 b:cpu-1 c:cpu-0, stop 2");
  world.Carry(first);
  EXPECT_EQ(Text(world.MakePlan()), "") << "c is kept for it";
  world.End(JobId{2}, /*again=*/true);
  EXPECT_EQ(Text(world.MakePlan()), "place 3 on b:cpu-0 b:cpu-1 c:cpu-0");
}

TEST(Preemption, ANominatedJobStartsOnOtherDevicesThatComeFreeFirst) {
  World world("a: cpu=1; b: cpu=2; c: cpu=5");
  world.Run(1);
  world.Run(2).may_preempt = false;
  world.Run(5).may_preempt = false;
  world.Submit(Urgent(3, 1));
  const Plan first = world.MakePlan();
  EXPECT_EQ(Text(first), "preempt for 3 on a:cpu-0, stop 1");
  world.Carry(first);
  world.Submit(Job(4, 1));  // it came first, but has a lower priority
  EXPECT_EQ(Text(world.MakePlan()), "");
  world.End(JobId{2});
  EXPECT_EQ(Text(world.MakePlan()), "place 3 on b:cpu-0");
  world.End(JobId{5});
  EXPECT_EQ(Text(world.MakePlan()), "place 3 on b:cpu-0; place 4 on c:cpu-0");
}

TEST(Preemption, ANominatedJobWithFreeClaimedDevicesStartsOnceAnyOthersSuffice) {
  World world("a: cpu cpu=1; b: cpu=2; c: cpu");
  world.Run(1);
  world.Run(2).may_preempt = false;
  world.Submit(Urgent(3, 3));
  const Plan first = world.MakePlan();
  EXPECT_EQ(Text(first), "preempt for 3 on a:cpu-0 a:cpu-1 c:cpu-0, stop 1");
  world.Carry(first);
  EXPECT_EQ(Text(world.MakePlan()), "");
  world.End(JobId{2});
  EXPECT_EQ(Text(world.MakePlan()), "place 3 on a:cpu-0 b:cpu-0 c:cpu-0")
      << "nobody has been stopped for it";
}

TEST(Preemption, ANominatedJobWaitsForTheRestOnceSomebodyHasMadeRoom) {
  World world("a: cpu=1 cpu=2; b: 2xcpu=5");
  world.Run(1);
  world.Run(2);
  world.Run(5).may_preempt = false;
  world.Submit(Urgent(3, 2));
  const Plan first = world.MakePlan();
  EXPECT_EQ(Text(first), "preempt for 3 on a:cpu-0 a:cpu-1, stop 1 2");
  world.Carry(first);
  world.End(JobId{1});
  EXPECT_EQ(Text(world.MakePlan()), "");
  world.End(JobId{5});
  EXPECT_EQ(Text(world.MakePlan()), "place 3 on b:cpu-0 b:cpu-1") << "1 has ended by itself";
  QueuedJob stopped_for = *world.queue.Find(JobId{3});
  stopped_for.has_room_made = true;
  world.Submit(stopped_for);
  EXPECT_EQ(Text(world.MakePlan()), "") << "else 1 would have been stopped for nothing";
  world.End(JobId{2});
  EXPECT_EQ(Text(world.MakePlan()), "place 3 on a:cpu-0 a:cpu-1");
}

TEST(Preemption, ANominatedJobTakesNothingFromALargerPriority) {
  World world("a: cpu=1; b: cpu=2");
  world.Run(1);
  world.Run(2).may_preempt = false;
  world.Submit(Urgent(3, 1));
  world.Carry(world.MakePlan());
  QueuedJob first = Urgent(4, 1);
  first.priority = 20;
  world.Submit(first);
  world.End(JobId{2});
  EXPECT_EQ(Text(world.MakePlan()), "place 4 on b:cpu-0");
}

TEST(Preemption, TwoNominationsNeverShareADevice) {
  World world("a: 2xcpu=1; b: 2xcpu=2; c: 2xcpu=5");
  world.Run(1);
  world.Run(2);
  world.Run(5).may_preempt = false;
  for (int64_t id = 3; id <= 4; ++id) world.Submit(Urgent(id, 3));
  const Plan plan = world.MakePlan();
  EXPECT_EQ(Text(plan), "preempt for 3 on a:cpu-0 a:cpu-1 b:cpu-0, stop 1 2");
  world.Carry(plan);
  EXPECT_EQ(Text(world.MakePlan()), "") << "nobody is left for jobs/4 whose going would help";
}

TEST(Preemption, AClaimedDeviceThatFailsIsReplaced) {
  World world("a: cpu=1~3; b: cpu!~3 cpu");
  world.Run(1).stops = true;
  world.Submit(Urgent(3, 2));
  EXPECT_EQ(Text(world.MakePlan()), "") << "one is free, one comes";
  world.End(JobId{1});
  EXPECT_EQ(Text(world.MakePlan()), "place 3 on a:cpu-0 b:cpu-1");
}

TEST(Preemption, ElasticVictimsShrinkInsteadOfGoing) {
  World world("a: 8xcpu=1");
  RunningJob& elastic = world.Run(1);
  elastic.demand.min_count = 2;
  world.Submit(Urgent(3, 4));
  const Plan plan = world.MakePlan();
  EXPECT_EQ(Text(plan),
            "preempt for 3 on a:cpu-2 a:cpu-3 a:cpu-4 a:cpu-5, stop 1 "
            "(keeps a:cpu-0 a:cpu-1 a:cpu-6 a:cpu-7)");
  world.Carry(plan);
  world.End(JobId{1}, /*again=*/true);
  EXPECT_EQ(Text(world.MakePlan()),
            "place 3 on a:cpu-2 a:cpu-3 a:cpu-4 a:cpu-5; "
            "place 1 on a:cpu-0 a:cpu-1 a:cpu-6 a:cpu-7");
}

TEST(Preemption, AnElasticVictimGoesWhereShrinkingIsNotEnough) {
  World world("a: 4xcpu=1");
  world.Run(1).demand.min_count = 2;
  world.Submit(Urgent(3, 3));
  EXPECT_EQ(Text(world.MakePlan()), "preempt for 3 on a:cpu-0 a:cpu-1 a:cpu-2, stop 1");
}

TEST(Preemption, ChoosesTheTypeOnWhichLeastIsLost) {
  World world("a: 2xgtx=1; b: 2xtitan=2");
  world.Run(1).at_risk_us = 5 * kMinute;
  world.Run(2).at_risk_us = 3 * kMinute;
  world.Submit(Urgent(3, 2));
  EXPECT_EQ(Text(world.MakePlan()), "preempt for 3 on b:titan-0 b:titan-1, stop 2");
  world.queue.Remove(JobId{3});
  world.Submit(Urgent(4, 2, "gtx"));
  EXPECT_EQ(Text(world.MakePlan()), "preempt for 4 on a:gtx-0 a:gtx-1, stop 1");
  world.queue.Remove(JobId{4});
  QueuedJob mixed = Urgent(5, 3);
  mixed.demand.mixed = true;
  world.Submit(mixed);
  EXPECT_EQ(Text(world.MakePlan()), "preempt for 5 on a:gtx-0 a:gtx-1 b:titan-0, stop 1 2");
}

TEST(Preemption, TakesNothingThatAJobAheadKeeps) {
  World world("a: 2xcpu=1; b: cpu=2 cpu");
  world.Run(1, kHour).may_preempt = false;
  world.Run(2).priority = 10;
  world.Submit(Urgent(3, 3));  // it keeps the free device and, in an hour, those of jobs/1
  world.Submit(Urgent(4, 1));
  world.running[JobId{1}].may_preempt = true;
  world.running[JobId{1}].priority = 9;
  EXPECT_EQ(Text(world.MakePlan()), "preempt for 3 on a:cpu-0 a:cpu-1 b:cpu-1, stop 1");
  world.running[JobId{1}].may_preempt = false;
  EXPECT_EQ(Text(world.MakePlan()), "");
}

QueuedJob UrgentOnOneHost(int64_t id, int32_t count) {
  QueuedJob job = Urgent(id, count);
  job.demand.one_host = true;
  return job;
}

TEST(Preemption, OfOneHostStopsVictimsOfOneHost) {
  World world("a: cpu=1 cpu=2; b: cpu=3 cpu=4");
  for (int64_t id = 1; id <= 4; ++id) world.Run(id).at_risk_us = id * kMinute;
  world.running[JobId{2}].at_risk_us = 9 * kMinute;  // the two cheapest are on different hosts
  world.Submit(UrgentOnOneHost(5, 2));
  EXPECT_EQ(Text(world.MakePlan()), "preempt for 5 on b:cpu-0 b:cpu-1, stop 3 4");
}

TEST(Preemption, OfOneHostUsesWhatIsFreeThereAndStopsNobodyWithoutNeed) {
  World world("a: cpu cpu=1 3xcpu=2; b: cpu=3; c: 3xcpu=4 cpu");
  world.Run(1).at_risk_us = kMinute;
  world.Run(2).at_risk_us = 2 * kMinute;
  world.Run(3).at_risk_us = 0;
  world.Run(4).at_risk_us = 5 * kMinute;
  world.Submit(UrgentOnOneHost(5, 4));
  EXPECT_EQ(Text(world.MakePlan()), "preempt for 5 on a:cpu-0 a:cpu-2 a:cpu-3 a:cpu-4, stop 2");
}

TEST(Preemption, OfOneHostStopsNobodyWhereNoHostWouldDo) {
  World world("a: cpu=1 cpu=2; b: cpu=3 cpu=4");
  for (int64_t id = 1; id <= 4; ++id) world.Run(id);
  world.running[JobId{1}].priority = 10;
  world.running[JobId{3}].may_preempt = false;
  world.Submit(UrgentOnOneHost(5, 2));
  EXPECT_EQ(Text(world.MakePlan()), "");
  world.running[JobId{3}].may_preempt = true;
  world.running[JobId{4}].stops = true;
  EXPECT_EQ(Text(world.MakePlan()), "preempt for 5 on b:cpu-0 b:cpu-1, stop 3")
      << "jobs/4 goes anyway";
}

TEST(Preemption, OfOneHostShrinksElasticVictims) {
  World world("a: 2xcpu=1; b: 3xcpu=1; c: 3xcpu=2");
  RunningJob& wide = world.Run(1);
  wide.demand.min_count = 2;
  wide.at_risk_us = kMinute;
  world.Run(2).at_risk_us = 2 * kMinute;
  world.Submit(UrgentOnOneHost(5, 3));
  EXPECT_EQ(Text(world.MakePlan()),
            "preempt for 5 on b:cpu-0 b:cpu-1 b:cpu-2, stop 1 (keeps a:cpu-0 a:cpu-1)");
  world.running[JobId{1}].demand.min_count = 3;
  EXPECT_EQ(Text(world.MakePlan()), "preempt for 5 on c:cpu-0 c:cpu-1 c:cpu-2, stop 2")
      << "it could shrink only by two, which is not enough on b";
  world.running[JobId{2}].may_preempt = false;
  EXPECT_EQ(Text(world.MakePlan()), "preempt for 5 on b:cpu-0 b:cpu-1 b:cpu-2, stop 1")
      << "it cannot go on with two";
}

TEST(Preemption, OfOneHostMixesTypesOnlyIfItMay) {
  World world("a: gtx=1 titan=2; b: gtx=3 gtx=4");
  for (int64_t id = 1; id <= 4; ++id) world.Run(id).at_risk_us = id * kMinute;
  world.Submit(UrgentOnOneHost(5, 2));
  EXPECT_EQ(Text(world.MakePlan()), "preempt for 5 on b:gtx-0 b:gtx-1, stop 3 4");
  world.queue.Remove(JobId{5});
  QueuedJob mixed = UrgentOnOneHost(6, 2);
  mixed.demand.mixed = true;
  world.Submit(mixed);
  EXPECT_EQ(Text(world.MakePlan()), "preempt for 6 on a:gtx-0 a:titan-1, stop 1 2");
}

TEST(Preemption, OfOneHostLeavesOthersTheirReservation) {
  World world("a: cpu=1@night cpu=2@night; b: cpu=3 cpu=4");
  for (int64_t id = 1; id <= 4; ++id) world.Run(id).at_risk_us = id * kMinute;
  QueuedJob urgent = UrgentOnOneHost(5, 2);
  world.Submit(urgent);
  EXPECT_EQ(Text(world.MakePlan()), "preempt for 5 on b:cpu-0 b:cpu-1, stop 3 4");
  urgent.reservations = {"night"};
  world.Submit(urgent);
  EXPECT_EQ(Text(world.MakePlan()), "preempt for 5 on a:cpu-0 a:cpu-1, stop 1 2");
}

TEST(Preemption, OfOneHostGetsProcessorsAndMemoryThere) {
  World world("a: 2xcpu cpu=1 cpu; b: 4xcpu=2");
  world.Run(1);
  world.Run(2).at_risk_us = 0;
  world.DivideHosts(8);
  // jobs/1 holds 6 of the processors of a, on one device. There are 3 free devices, and no room.
  world.pool[0].devices[2].held = {6, int64_t{1} << 30};
  world.running[JobId{1}].ranks[0].held = {6, int64_t{1} << 30};
  world.running[JobId{2}].priority = 10;
  QueuedJob urgent = UrgentOnOneHost(5, 3);
  urgent.demand.resources.cpus = 2;
  world.Submit(urgent);
  EXPECT_EQ(Text(world.MakePlan()), "preempt for 5 on a:cpu-0 a:cpu-1 a:cpu-2, stop 1");
  world.running[JobId{2}].priority = 0;
  EXPECT_EQ(Text(world.MakePlan()), "preempt for 5 on b:cpu-0 b:cpu-1 b:cpu-2, stop 2")
      << "less is lost there";
}

TEST(Preemption, AClaimOverSeveralHostsIsReplacedForAGangOfOneHost) {
  World world("a: cpu~5 cpu; b: cpu~5");
  world.Submit(UrgentOnOneHost(5, 2));
  EXPECT_EQ(Text(world.MakePlan()), "place 5 on a:cpu-0 a:cpu-1");
}

}  // namespace
}  // namespace trainyard::core
