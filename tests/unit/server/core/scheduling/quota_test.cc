// Tests the limits on the number of devices that are held at a time.
#include "server/core/scheduling/quota.h"

#include <gtest/gtest.h>

#include "tests/unit/server/core/scheduling/policy_fixture.h"

namespace trainyard::core {
namespace {

TEST(Quota, AUserOverItWaitsAndBlocksNobody) {
  World world("a: cpu=7 3xcpu");
  world.Run(7);
  world.quotas["user:anna"] = {.subject = "user:anna", .devices = 2};
  world.Submit(Job(8, 2));
  world.Submit(Job(9, 1));
  QueuedJob other = Job(10, 2);
  other.user = "ben";
  world.Submit(other);
  EXPECT_EQ(Text(world.MakePlan()), "place 10 on a:cpu-1 a:cpu-2; place 9 on a:cpu-3");
}

TEST(Quota, OfAProjectCoversAllItsUsers) {
  World world("a: cpu=7 3xcpu");
  world.Run(7).project = "vision";
  world.quotas["project:*"] = {.subject = "project:*", .devices = 2};
  for (int64_t id = 8; id <= 9; ++id) {
    QueuedJob job = Job(id, 1);
    job.user = "ben";
    job.project = "vision";
    world.Submit(job);
  }
  world.Submit(Job(10, 1));  // it has no project, so no project's quota applies
  EXPECT_EQ(Text(world.MakePlan()), "place 10 on a:cpu-1; place 8 on a:cpu-2");
}

TEST(Quota, AnElasticJobTakesWhatItLeaves) {
  World world("a: 8xcpu");
  world.quotas["user:*"] = {.subject = "user:*", .devices = 3};
  QueuedJob job = Job(1, 8);
  job.demand.min_count = 2;
  world.Submit(job);
  EXPECT_EQ(Text(world.MakePlan()), "place 1 on a:cpu-0 a:cpu-1 a:cpu-2");
}

TEST(Quota, ClaimedDevicesCount) {
  World world("a: h200=7~8 2xcpu");
  world.Run(7).user = "ben";
  world.running[JobId{7}].stops = true;
  world.quotas["user:anna"] = {.subject = "user:anna", .devices = 1};
  world.Submit(Job(8, 1, "h200"));
  world.Submit(Job(9, 1));
  EXPECT_EQ(Text(world.MakePlan()), "") << "jobs/8 is about to have the one device";
}

TEST(Quota, SoManyJobsOfAnArrayAtATime) {
  World world("a: cpu=20 3xcpu");
  world.Run(20).array = JobId{20};
  for (int64_t id = 21; id <= 23; ++id) {
    QueuedJob job = Job(id, 1);
    job.array = JobId{20};
    job.array_parallel = 2;
    world.Submit(job);
  }
  world.Submit(Job(24, 1));
  EXPECT_EQ(Text(world.MakePlan()), "place 21 on a:cpu-1; place 24 on a:cpu-2");
}

TEST(Quota, SaysWhoHoldsWhat) {
  std::map<std::string, QuotaRecord> records;
  records["user:anna"] = {.subject = "user:anna", .devices = 4};
  records["project:*"] = {.subject = "project:*", .devices = 3};
  Quotas quotas(records);
  quotas.Charge("anna", "vision", 2);
  quotas.ChargeArray(JobId{5});
  QueuedJob job = Job(6, 4);
  job.project = "vision";
  job.array = JobId{5};
  job.array_parallel = 1;
  const std::vector<std::string> reasons = quotas.WhyNot(job, 4);
  ASSERT_EQ(reasons.size(), 3);
  EXPECT_EQ(reasons[0], "needs 4 devices; user anna holds 2 of at most 4 (quota user:anna)");
  EXPECT_EQ(reasons[1],
            "needs 4 devices; project vision holds 2 of at most 3 (quota project:*): it can never "
            "start with this quota");
  EXPECT_EQ(reasons[2], "1 jobs of its array, jobs/5, hold devices; at most 1 may at a time");
  EXPECT_TRUE(quotas.WhyNot(Job(7, 2), 2).empty());
}

}  // namespace
}  // namespace trainyard::core
