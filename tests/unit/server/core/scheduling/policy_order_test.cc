// Tests which job starts first.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/server/core/scheduling/policy_fixture.h"

namespace trainyard::core {
namespace {

QueuedJob Of(int64_t id, const std::string& user, const std::string& project = "",
             int32_t priority = 0) {
  QueuedJob job = Job(id, 1);
  job.user = user;
  job.project = project;
  job.priority = priority;
  return job;
}

// Returns the jobs that a pool of this many devices starts, in order.
std::vector<int64_t> Started(const World& world, const PolicyOptions& options = {}) {
  std::vector<int64_t> started;
  for (const GangPlacement& placement : world.MakePlan(options).placements) {
    started.push_back(placement.job.value);
  }
  return started;
}

using Ids = std::vector<int64_t>;

TEST(Order, LargerPriorityThenSmallerNumber) {
  World world("a: 4xcpu");
  world.Submit(Of(1, "anna"));
  world.Submit(Of(2, "anna", "", 5));
  world.Submit(Of(3, "anna"));
  world.Submit(Of(4, "anna", "", 5));
  EXPECT_EQ(Started(world), (Ids{2, 4, 1, 3}));
  EXPECT_EQ(Started(world, {.priorities = false}), (Ids{1, 2, 3, 4}));
}

TEST(Order, ABurstOfOneUserDoesNotTakeEverything) {
  World world("a: 4xcpu");
  for (int64_t id = 1; id <= 4; ++id) world.Submit(Of(id, "anna"));
  for (int64_t id = 5; id <= 6; ++id) world.Submit(Of(id, "ben"));
  EXPECT_EQ(Started(world), (Ids{1, 5, 2, 6}));
  EXPECT_EQ(Started(world, {.fair_share = false}), (Ids{1, 2, 3, 4}));
}

TEST(Order, WhoHasUsedLessGoesFirst) {
  World world("a: 2xcpu");
  world.usage[{"", "anna"}] = {"", "anna", kHour};
  world.Submit(Of(1, "anna"));
  world.Submit(Of(2, "ben"));
  world.Submit(Of(3, "ben"));
  // Two devices in advance count as 20 minutes, which is still less than an hour.
  EXPECT_EQ(Started(world), (Ids{2, 3}));
  world.quotas["user:anna"] = {.subject = "user:anna", .weight = 12};
  // An hour divided by 12 is 5 minutes, and a device in advance counts as 10.
  EXPECT_EQ(Started(world), (Ids{2, 1}));
}

TEST(Order, WhatIsHeldCountsInAdvance) {
  World world("a: cpu=7 cpu");
  world.Run(7).user = "anna";
  world.Submit(Of(8, "anna"));
  world.Submit(Of(9, "ben"));
  EXPECT_EQ(Started(world), (Ids{9}));
}

TEST(Order, ProjectsShareFirstThenTheirUsers) {
  World world("a: 4xcpu");
  world.Submit(Of(1, "anna", "vision"));
  world.Submit(Of(2, "ben", "vision"));
  world.Submit(Of(3, "cleo", "vision"));
  world.Submit(Of(4, "dan", "speech"));
  world.Submit(Of(5, "dan", "speech"));
  // Each project has two devices in the end, whatever the number of its users.
  EXPECT_EQ(Started(world), (Ids{1, 4, 2, 5}));
}

TEST(Order, WeightsOfAllOthersApplyWhereThereIsNoOwn) {
  World world("a: 3xcpu");
  for (int64_t id = 1; id <= 3; ++id) world.Submit(Of(id, "anna", "vision"));
  for (int64_t id = 4; id <= 6; ++id) world.Submit(Of(id, "ben", "speech"));
  world.quotas["project:*"] = {.subject = "project:*", .weight = 2};
  EXPECT_EQ(Started(world), (Ids{1, 4, 2}));
  world.quotas["project:speech"] = {.subject = "project:speech", .weight = 4};
  EXPECT_EQ(Started(world), (Ids{1, 4, 5}));
}

TEST(Order, AJobThatHasWaitedVeryLongGoesBeforeFairShare) {
  World world("a: cpu");
  world.usage[{"", "anna"}] = {"", "anna", 1000 * kHour};
  QueuedJob old = Of(1, "anna");
  old.waiting_since_us = world.now.wall_us - world.config.overdue_after_us;
  world.Submit(old);
  world.Submit(Of(2, "ben"));
  EXPECT_EQ(Started(world), (Ids{2}));
  old.waiting_since_us -= 1;
  world.Submit(old);
  EXPECT_EQ(Started(world), (Ids{1}));
  world.Submit(Of(3, "ben", "", 1));
  EXPECT_EQ(Started(world), (Ids{3})) << "priority still goes first";
}

TEST(Order, HeldAndInfeasibleJobsHoldUpNobody) {
  World world("a: cpu");
  QueuedJob held = Job(1, 1);
  held.holds = {"backoff until 12:03:07 UTC after a transient failure"};
  world.Submit(held);
  world.Submit(Job(2, 8));
  world.Submit(Job(3, 1));
  EXPECT_EQ(Started(world), (Ids{3}));
}

TEST(Order, TheFrontListsWaitingJobsInOrderThenHeldOnes) {
  World world("a: cpu");
  QueuedJob held = Job(1, 1);
  held.holds = {"waits for job jobs/9 to end; it is running"};
  world.Submit(held);
  world.Submit(Job(2, 1));
  world.Submit(Job(3, 1));
  QueuedJob first = Job(4, 1);
  first.priority = 1;
  world.Submit(first);
  EXPECT_THAT(world.MakePlan().front, testing::ElementsAre(JobId{2}, JobId{3}, JobId{1}));
  for (int64_t id = 10; id < 10 + static_cast<int64_t>(kFrontMax); ++id) world.Submit(Job(id, 1));
  EXPECT_EQ(world.MakePlan().front.size(), kFrontMax);
}

TEST(Order, OnePassLooksAtSoManyShapesAndLeavesTheRest) {
  World world("a: cpu=9 cpu=9 cpu=9 cpu");
  world.Run(9);
  world.config.pass_kinds_max = 2;
  world.Submit(Job(1, 2));
  world.Submit(Job(2, 3));
  world.Submit(Job(3, 4));
  QueuedJob other = Job(4, 1);
  other.expected_us = kSecond;
  world.Submit(other);
  EXPECT_EQ(Started(world), Ids{});
  world.config.pass_kinds_max = 4;
  EXPECT_EQ(Started(world), Ids{4});
}

}  // namespace
}  // namespace trainyard::core
