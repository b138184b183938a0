#include "server/core/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace trainyard::core {
namespace {

using ::testing::ElementsAre;

Pool Cpus(int count) {
  PoolWorker worker;
  worker.name = "lab-1";
  for (int i = 0; i < count; ++i) {
    PoolDevice device;
    device.name = absl::StrCat("cpu-", i);
    device.type = "cpu";
    worker.devices.push_back(device);
  }
  return {worker};
}

QueuedJob Job(int64_t id, int32_t count, int32_t priority = 0) {
  QueuedJob job;
  job.id = JobId{id};
  job.demand = {count, "cpu", false};
  job.priority = priority;
  return job;
}

bool IsPlaced(const Plan& plan, int64_t job) {
  return std::holds_alternative<Place>(plan.at(JobId{job}));
}

TEST(FifoPolicy, PlacesInOrderOfSubmission) {
  const Plan plan = FifoPolicy().MakePlan(Cpus(3), {Job(2, 2), Job(1, 1), Job(3, 1)});
  EXPECT_TRUE(IsPlaced(plan, 1));
  EXPECT_TRUE(IsPlaced(plan, 2));
  EXPECT_THAT(std::get<Wait>(plan.at(JobId{3})).reasons,
              ElementsAre("needs 1 device of type cpu; 0 of 3 are free (jobs/1 holds 1, jobs/2 "
                          "holds 2)"));
}

TEST(FifoPolicy, NobodyOvertakesTheHead) {
  Pool pool = Cpus(3);
  pool[0].devices[0].holder = JobId{9};
  const Plan plan = FifoPolicy().MakePlan(pool, {Job(7, 3), Job(8, 1)});
  EXPECT_FALSE(IsPlaced(plan, 7));
  EXPECT_THAT(std::get<Wait>(plan.at(JobId{8})).reasons,
              ElementsAre("job jobs/7 is ahead in the queue"));
}

TEST(FifoPolicy, AJobThatCanNeverStartOrIsInABackoffHoldsUpNobody) {
  QueuedJob backing_off = Job(2, 1);
  backing_off.holds = {"backoff until 12:03:07 UTC after a transient failure"};
  const Plan plan = FifoPolicy().MakePlan(Cpus(1), {Job(1, 8), backing_off, Job(3, 1)});
  EXPECT_TRUE(std::holds_alternative<Infeasible>(plan.at(JobId{1})));
  EXPECT_EQ(std::get<Wait>(plan.at(JobId{2})).reasons, backing_off.holds);
  EXPECT_TRUE(IsPlaced(plan, 3));
}

TEST(FifoPolicy, LargerPriorityGoesFirst) {
  const Plan plan = FifoPolicy().MakePlan(Cpus(1), {Job(1, 1), Job(2, 1, 5)});
  EXPECT_TRUE(IsPlaced(plan, 2));
  EXPECT_FALSE(IsPlaced(plan, 1));
}

}  // namespace
}  // namespace trainyard::core
