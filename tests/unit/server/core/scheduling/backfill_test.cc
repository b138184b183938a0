// Tests which devices heads of the queue keep, and which they lend.
#include "server/core/scheduling/backfill.h"

#include <gtest/gtest.h>

#include "tests/unit/server/core/scheduling/policy_fixture.h"

namespace trainyard::core {
namespace {

QueuedJob Lasting(int64_t id, int32_t count, int64_t expected_us, const std::string& type = "") {
  QueuedJob job = Job(id, count, type);
  job.expected_us = expected_us;
  return job;
}

TEST(Backfill, OnlyJobsThatEndInTimeOvertakeTheHead) {
  World world("a: 3xcpu=1 cpu");
  world.Run(1, kHour);
  world.Submit(Job(2, 4));
  world.Submit(Job(3, 1));                 // no known end
  world.Submit(Lasting(4, 1, 2 * kHour));  // too long
  world.Submit(Lasting(5, 1, kHour / 2));
  EXPECT_EQ(Text(world.MakePlan()), "place 5 on a:cpu-3");
  EXPECT_EQ(Text(world.MakePlan({.backfill = false})), "");
}

TEST(Backfill, WhatTheHeadWillNotNeedIsLentForAnyTime) {
  World world("a: 4xcpu=1; b: 2xcpu");
  world.Run(1, kHour);
  world.Submit(Job(2, 5));  // in an hour six devices are free: one is left over
  world.Submit(Job(3, 1));
  world.Submit(Job(4, 1));
  EXPECT_EQ(Text(world.MakePlan()), "place 3 on b:cpu-0");
}

TEST(Backfill, DevicesThatCannotServeTheHeadAreFreeForAll) {
  World world("a: 3xh200=1 h200; b[disk=ssd]: cpu cpu");
  world.Run(1, kHour);
  world.Submit(Job(2, 4, "h200"));
  world.Submit(Job(3, 2, "cpu"));
  EXPECT_EQ(Text(world.MakePlan()), "place 3 on b:cpu-0 b:cpu-1");
  EXPECT_EQ(Text(world.MakePlan({.backfill = false})), "place 3 on b:cpu-0 b:cpu-1");
}

TEST(Backfill, EachPartOfThePoolHasAHead) {
  World world("a: h200=1 h200; b: cpu=2 cpu");
  world.Run(1);
  world.Run(2);
  world.Submit(Job(3, 2, "h200"));
  world.Submit(Job(4, 2, "cpu"));
  world.Submit(Job(5, 1, "h200"));
  world.Submit(Job(6, 1, "cpu"));
  EXPECT_EQ(Text(world.MakePlan()), "") << "jobs/4 keeps the cpu as jobs/3 keeps the h200";
}

TEST(Backfill, AHeadOfAnyTypeKeepsTheTypeThatComesFirst) {
  World world("a: h200=1 h200; b: cpu=2 cpu");
  world.Run(1, 2 * kHour);
  world.Run(2, kHour);
  world.Submit(Job(3, 2));
  world.Submit(Job(4, 1, "cpu"));
  world.Submit(Job(5, 1, "h200"));
  EXPECT_EQ(Text(world.MakePlan()), "place 5 on a:h200-1");
}

TEST(Backfill, WhereNoEndIsKnownOnlyShortJobsAreLentTo) {
  World world("a: 2xcpu=1 2xcpu");
  world.Run(1);
  world.Submit(Job(2, 3));
  world.Submit(Job(3, 1));
  world.Submit(Lasting(4, 1, 2 * kBlindBackfillUs));
  world.Submit(Lasting(5, 1, kBlindBackfillUs / 2));
  EXPECT_EQ(Text(world.MakePlan()), "place 5 on a:cpu-2");
}

TEST(Backfill, AnOverdueHeadLendsNothingOnAWord) {
  World world("a: 3xcpu=1; b: 2xcpu");
  world.Run(1, kHour);
  QueuedJob head = Job(2, 4);
  head.waiting_since_us = world.now.wall_us - world.config.overdue_after_us - 1;
  world.Submit(head);
  world.Submit(Job(3, 1));  // one is left over if jobs/1 ends when it should
  EXPECT_EQ(Text(world.MakePlan()), "");
  world.Submit(Lasting(4, 1, kHour / 2));
  EXPECT_EQ(Text(world.MakePlan()), "place 4 on b:cpu-0") << "it ends in time";
}

TEST(Backfill, AnInfeasibleHeadKeepsNothing) {
  World world("a: cpu=1 cpu");
  world.Run(1);
  world.Submit(Job(2, 3));
  world.Submit(Job(3, 1));
  EXPECT_EQ(Text(world.MakePlan()), "place 3 on a:cpu-1");
}

TEST(Backfill, AHeadThatNeedsACordonedWorkerKeepsItsDevices) {
  World world("a-: 2xcpu; b: cpu");
  world.Submit(Job(2, 3));
  world.Submit(Job(3, 1));
  EXPECT_EQ(Text(world.MakePlan()), "");
}

QueuedJob OnOneHost(int64_t id, int32_t count) {
  QueuedJob job = Job(id, count);
  job.demand.one_host = true;
  return job;
}

TEST(Backfill, AHeadOfOneHostKeepsTheHostWhereItCanStartFirst) {
  World world("a: 2xcpu cpu=1; b: 2xcpu; c: 2xcpu");
  world.Run(1, kHour);
  world.Submit(OnOneHost(2, 3));
  world.Submit(Job(3, 1));
  world.Submit(Job(4, 1));
  const Plan plan = world.MakePlan();
  EXPECT_EQ(Text(plan), "place 3 on b:cpu-0; place 4 on b:cpu-1")
      << "b and c can never hold it, so that only a is kept";
  const Explanation explanation = plan.record->Explain(world.Input(), *world.queue.Find(JobId{2}));
  EXPECT_EQ(explanation.start_in_us, kHour);
  ASSERT_EQ(explanation.reasons.size(), 2u);
  EXPECT_EQ(explanation.reasons[0],
            "needs 3 devices on one host; 4 are free, but on several hosts");
  world.Submit(Lasting(5, 2, 30 * kMinute));
  world.Submit(Job(6, 2));
  EXPECT_EQ(Text(world.MakePlan()),
            "place 3 on b:cpu-0; place 4 on b:cpu-1; place 5 on a:cpu-0 a:cpu-1; "
            "place 6 on c:cpu-0 c:cpu-1")
      << "a is lent until the head can start";
  EXPECT_EQ(Text(world.MakePlan({.backfill = false})), "") << "then all is kept";
}

TEST(Backfill, AHeadOfOneHostLendsTheSurplusOfItsHost) {
  World world("a: 3xcpu=1 2xcpu; b: 2xcpu=2 2xcpu");
  world.Run(1, kHour);
  world.Run(2, 2 * kHour);
  world.Submit(OnOneHost(3, 4));
  for (int64_t id = 4; id <= 7; ++id) world.Submit(Job(id, 1));
  // In an hour, a has five devices, of which one is left over. All of b is free for others.
  EXPECT_EQ(Text(world.MakePlan()), "place 4 on a:cpu-3; place 5 on b:cpu-2; place 6 on b:cpu-3");
}

TEST(Backfill, AHeadOfOneHostKeepsMostOfOneHostIfNothingIsKnown) {
  World world("a: 3xcpu=1 cpu; b: 2xcpu=2 2xcpu; c: 5xcpu! 3xcpu");
  world.Run(1);
  world.Run(2);
  world.Submit(OnOneHost(3, 4));
  world.Submit(Job(4, 2));
  world.Submit(Job(5, 1));
  EXPECT_EQ(Text(world.MakePlan()), "place 4 on c:cpu-5 c:cpu-6; place 5 on a:cpu-3")
      << "c has more free devices, but not enough that are fit";
  world.running[JobId{1}].end_us = world.now.uptime_us + kHour;
  EXPECT_EQ(Text(world.MakePlan()), "place 4 on b:cpu-2 b:cpu-3; place 5 on c:cpu-5");
}

TEST(Backfill, AHeadOfOneHostCountsProcessors) {
  World world("a: 2xcpu cpu=1 cpu; b: 2xcpu cpu=2 cpu");
  world.Run(1, kHour);
  world.Run(2, 2 * kHour);
  world.DivideHosts(8);
  const HostAmount few{1, 0};
  const HostAmount many{6, 0};
  world.pool[0].devices[2].held = few;
  world.running[JobId{1}].ranks[0].held = few;
  world.pool[1].devices[2].held = many;
  world.running[JobId{2}].ranks[0].held = many;
  world.running[JobId{1}].end_us.reset();
  QueuedJob head = OnOneHost(3, 4);
  head.demand.resources.cpus = 2;
  world.Submit(head);
  world.Submit(Job(4, 1));
  const Plan plan = world.MakePlan();
  EXPECT_EQ(Text(plan), "place 4 on a:cpu-0") << "the head can start on b in two hours";
}

// A stream of small jobs that tell no end comes to three hosts, each of which would do. The head
// needs a whole host.
TEST(Backfill, AStreamOfSmallJobsStarvesNoGangOfOneHost) {
  World world("a: 4xcpu; b: 4xcpu; c: 2xcpu");
  std::map<JobId, int64_t> ends;
  int64_t next = 100;
  int64_t started = -1;
  for (int64_t minute = 0; minute < int64_t{12} * 60 && started < 0; ++minute) {
    if (minute == 10) world.Submit(OnOneHost(50, 4));
    for (int i = 0; i < 10; ++i) world.Submit(Job(next++, 1));
    const Plan plan = world.MakePlan();
    world.Carry(plan);
    for (const GangPlacement& placement : plan.placements) {
      ends[placement.job] = world.now.uptime_us + (20 + placement.job.value % 8) * kMinute;
    }
    if (world.running.count(JobId{50}) > 0) started = minute - 10;
    world.now.uptime_us += kMinute;
    world.now.wall_us += kMinute;
    std::erase_if(ends, [&](const auto& end) {
      if (end.second > world.now.uptime_us) return false;
      world.End(end.first);
      return true;
    });
  }
  EXPECT_GT(started, 0);
  EXPECT_LE(started, 30);
}

// A stream of small jobs competes with a wide gang: a new job comes each minute, and as soon as a
// device is free. `expected_us` is the duration that the jobs state.
int64_t MinutesUntilTheGangStarts(int64_t expected_us, int64_t takes_us) {
  World world("a: 4xcpu; b: 4xcpu");
  int64_t next = 100;
  const JobId gang{50};
  std::map<JobId, int64_t> ends;
  for (int64_t minute = 0; minute < int64_t{24} * 60; ++minute) {
    if (minute == 10) world.Submit(Job(50, 8));
    for (int i = 0; i < 8; ++i) {
      QueuedJob small = Job(next++, 1);
      small.expected_us = expected_us;
      world.Submit(small);
    }
    const Plan plan = world.MakePlan();
    world.Carry(plan);
    // Each job takes another minute longer, so that devices become free one at a time.
    for (const GangPlacement& placement : plan.placements) {
      ends[placement.job] = world.now.uptime_us + takes_us + placement.job.value % 8 * kMinute;
    }
    if (world.running.count(gang) > 0) return minute - 10;
    world.now.uptime_us += kMinute;
    world.now.wall_us += kMinute;
    for (auto it = ends.begin(); it != ends.end();) {
      if (it->second > world.now.uptime_us) {
        ++it;
        continue;
      }
      world.End(it->first);
      it = ends.erase(it);
    }
  }
  return -1;
}

TEST(Backfill, AStreamOfSmallJobsStarvesNoWideGang) {
  // The jobs that run when the gang comes take 20 to 27 minutes, and no job that ends later is
  // started.
  const int64_t with_limits = MinutesUntilTheGangStarts(27 * kMinute, 20 * kMinute);
  EXPECT_GT(with_limits, 0);
  EXPECT_LE(with_limits, 30);
  const int64_t without = MinutesUntilTheGangStarts(0, 20 * kMinute);
  EXPECT_GT(without, 0);
  EXPECT_LE(without, 30);
}

}  // namespace
}  // namespace trainyard::core
