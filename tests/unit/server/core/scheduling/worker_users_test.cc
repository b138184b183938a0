// Tests that workers get jobs of the users whose jobs they run, and that people are told.
#include "server/core/scheduling/worker_users.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/server/core/scheduling/policy_fixture.h"

namespace trainyard::core {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

QueuedJob JobOf(const std::string& user, int64_t id, int32_t count = 1) {
  QueuedJob job = Job(id, count);
  job.user = user;
  job.named_user = user;
  return job;
}

PoolWorker& WorkerIn(World& world, const std::string& name) {
  for (PoolWorker& worker : world.pool) {
    if (worker.name == name) return worker;
  }
  ADD_FAILURE() << "there is no worker " << name;
  return world.pool.front();
}

std::vector<std::string> Reasons(const World& world, int64_t id) {
  return world.MakePlan().record->Reasons(world.Input(), JobId{id});
}

TEST(WorkerUsers, AllowEverybodyUnlessTheySayOtherwise) {
  EXPECT_TRUE(WorkerUsers{}.empty());
  EXPECT_TRUE(WorkerUsers{}.Allow("anna"));
  const WorkerUsers annas{.only = "anna"};
  EXPECT_TRUE(annas.Allow("anna"));
  EXPECT_FALSE(annas.Allow("bert"));
  EXPECT_FALSE(annas.Allow(""));
  const WorkerUsers without{.refused = {{"carl", "no account"}}};
  EXPECT_TRUE(without.Allow("anna"));
  EXPECT_FALSE(without.Allow("carl"));
  EXPECT_EQ(WhyNotFor("bert", "w", annas), "worker w runs jobs of anna only");
  EXPECT_EQ(WhyNotFor("carl", "w", without), "worker w does not run jobs of carl: no account");
  EXPECT_EQ(WhyNotFor("anna", "w", annas), "");
}

TEST(WorkerUsers, DecideWhereAJobGoes) {
  World world("a: cpu; b: cpu; c: cpu");
  WorkerIn(world, "a").users.only = "anna";
  WorkerIn(world, "b").users.refused["bert"] = "this host has no account 'bert'";
  world.Submit(JobOf("bert", 1));
  world.Submit(JobOf("bert", 2));
  world.Submit(JobOf("anna", 3));
  const Plan plan = world.MakePlan();
  ASSERT_EQ(plan.placements.size(), 2U) << Text(plan);
  EXPECT_EQ(Text(plan.placements[0].ranks), "c:cpu-0");
  EXPECT_EQ(plan.placements[0].job, JobId{1});
  EXPECT_EQ(plan.placements[1].job, JobId{3});
  world.Carry(plan);
  EXPECT_THAT(Reasons(world, 2),
              ElementsAre("needs 1 device; 0 of 1 are free (jobs/1 holds 1)",
                          "worker a runs jobs of anna only (1 device)",
                          "worker b does not run jobs of bert: this host has no account 'bert' "
                          "(1 device)"));
}

TEST(WorkerUsers, AJobThatNoWorkerRunsCanNeverStart) {
  World world("a: cpu cpu");
  WorkerIn(world, "a").users.only = "anna";
  world.Submit(JobOf("bert", 1));
  world.Submit(JobOf("anna", 2));
  const Plan plan = world.MakePlan();
  EXPECT_EQ(plan.placements.size(), 1U);
  const Explanation explanation = plan.record->Explain(world.Input(), *world.queue.Find(JobId{1}));
  EXPECT_TRUE(explanation.infeasible);
  EXPECT_THAT(explanation.reasons,
              ElementsAre("needs 1 device; the pool has 0: it can never start here",
                          "worker a runs jobs of anna only (2 devices)"));
  EXPECT_TRUE(Reasons(world, 2).empty() || plan.placements[0].job == JobId{2});
}

TEST(WorkerUsers, AGangNeverSpansAWorkerOfSomebodyElse) {
  World world("a: cpu; b: cpu");
  WorkerIn(world, "b").users.only = "anna";
  world.Submit(JobOf("bert", 1, 2));
  EXPECT_THAT(world.MakePlan().placements, IsEmpty());
  world.Submit(JobOf("anna", 2, 2));
  EXPECT_EQ(world.MakePlan().placements.size(), 1U);
}

TEST(WorkerUsers, APlacementIsCheckedOnceMore) {
  World world("a: cpu");
  WorkerIn(world, "a").users.only = "anna";
  const QueuedJob berts = JobOf("bert", 1);
  EXPECT_FALSE(CheckPlacement(world.pool, berts, {{0, "a", "cpu-0"}}).ok());
  EXPECT_TRUE(CheckPlacement(world.pool, JobOf("anna", 2), {{0, "a", "cpu-0"}}).ok());
}

TEST(WorkerUsers, AnElasticJobGrowsOnlyOntoWorkersOfItsOwner) {
  World world("a: cpu=1; b: cpu; c: cpu");
  WorkerIn(world, "b").users.only = "bert";
  RunningJob& job = world.Run(1);
  job.demand.count = 3;
  job.demand.min_count = 1;
  job.since_us = world.now.uptime_us - kHour;
  const Plan plan = world.MakePlan();
  ASSERT_EQ(plan.growths.size(), 1U) << Text(plan);
  EXPECT_EQ(Text(plan), "grow 1 to a:cpu-0 c:cpu-0");
}

TEST(WorkerUsers, JobsOfUsersWhomNobodyNamesShareAShape) {
  QueuedJob anna = Job(1, 1);
  QueuedJob bert = Job(2, 1);
  bert.user = "bert";
  EXPECT_EQ(ShapeOf(anna), ShapeOf(bert));
  bert.named_user = "bert";
  EXPECT_NE(ShapeOf(anna), ShapeOf(bert));
}

}  // namespace
}  // namespace trainyard::core
