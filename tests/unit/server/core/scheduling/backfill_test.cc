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
