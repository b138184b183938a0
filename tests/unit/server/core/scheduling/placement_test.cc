// Tests the check that every placement has to pass.
#include "server/core/scheduling/placement.h"

#include <gtest/gtest.h>

#include "tests/unit/server/core/scheduling/policy_fixture.h"

namespace trainyard::core {
namespace {

std::string Check(const std::string& pool, const QueuedJob& job,
                  const std::vector<RankPlacement>& ranks) {
  return std::string(CheckPlacement(PoolOf(pool), job, ranks).message());
}

TEST(Placement, IsCheckedBeforeItCounts) {
  const std::string pool = "a: 2xcpu; b: h200";
  EXPECT_EQ(Check(pool, Job(1, 2), {{0, "a", "cpu-0"}, {1, "a", "cpu-1"}}), "");
  EXPECT_EQ(Check(pool, Job(1, 2), {{0, "a", "cpu-0"}}), "1 ranks placed; the gang has 2");
  EXPECT_EQ(Check(pool, Job(1, 2), {{0, "a", "cpu-0"}, {2, "a", "cpu-1"}}),
            "rank 2 stands where 1 was expected");
  EXPECT_EQ(Check(pool, Job(1, 2), {{0, "a", "cpu-0"}, {1, "a", "cpu-0"}}),
            "device cpu-0 of a was given out twice");
  EXPECT_EQ(Check(pool, Job(1, 1), {{0, "a", "cpu-7"}}), "device cpu-7 of a does not exist");
  EXPECT_EQ(Check(pool, Job(1, 1), {{0, "z", "cpu-0"}}), "worker z is not in the pool");
}

TEST(Placement, HasTheDemandedType) {
  const std::string pool = "a: cpu; b: h200";
  const std::vector<RankPlacement> both = {{0, "a", "cpu-0"}, {1, "b", "h200-0"}};
  EXPECT_EQ(Check(pool, Job(1, 2), both), "devices of different types; the demand is not mixed");
  EXPECT_EQ(Check(pool, Job(1, 1, "h200"), {{0, "a", "cpu-0"}}),
            "device cpu-0 of a is of type cpu; the demand is h200");
  QueuedJob mixed = Job(1, 2);
  mixed.demand.mixed = true;
  EXPECT_EQ(Check(pool, mixed, both), "");
}

TEST(Placement, OfAnElasticGangHasAnySizeFromLeastToMost) {
  QueuedJob job = Job(1, 3);
  job.demand.min_count = 2;
  EXPECT_EQ(Check("a: 4xcpu", job, {{0, "a", "cpu-0"}}), "1 ranks placed; the gang has 2 to 3");
  EXPECT_EQ(Check("a: 4xcpu", job, {{0, "a", "cpu-0"}, {1, "a", "cpu-1"}}), "");
}

TEST(Placement, UsesOnlyWhatIsOnOffer) {
  const std::vector<RankPlacement> first = {{0, "a", "cpu-0"}};
  const std::string refused = "device cpu-0 of a is not on offer";
  for (const char* pool : {"a: cpu=9", "a: cpu!", "a-: cpu", "a: cpu~5", "a: cpu@night"}) {
    EXPECT_EQ(Check(pool, Job(1, 1), first), refused) << pool;
  }
  EXPECT_EQ(Check("a: cpu~1", Job(1, 1), first), "") << "its own claim";
  QueuedJob entitled = Job(1, 1);
  entitled.reservations = {"night"};
  EXPECT_EQ(Check("a: cpu@night", entitled, first), "");
  entitled.reservation = "night";
  EXPECT_EQ(Check("a: cpu@night", entitled, first), "");
  EXPECT_EQ(Check("a: cpu", entitled, first), refused) << "it runs in its reservation only";
}

TEST(Placement, HasTheDemandedMemoryAndLabels) {
  QueuedJob job = Job(1, 1);
  job.demand.memory_bytes = int64_t{80} << 30;
  EXPECT_EQ(Check("a: h200*40", job, {{0, "a", "h200-0"}}),
            "device h200-0 of a has 42949672960 bytes of memory; the demand is 85899345920");
  job.demand.memory_bytes = 0;
  job.demand.labels = {{"disk", "ssd"}};
  EXPECT_EQ(Check("a[disk=hdd]: h200", job, {{0, "a", "h200-0"}}),
            "device h200-0 of a is on a worker without the label disk=ssd");
  EXPECT_EQ(Check("a[disk=ssd]: h200", job, {{0, "a", "h200-0"}}), "");
}

TEST(Placement, ComputesInBf16IfThatIsDemanded) {
  QueuedJob job = Job(1, 1);
  job.demand.bf16 = true;
  EXPECT_EQ(Check("a: v100", job, {{0, "a", "v100-0"}}),
            "device v100-0 of a does not compute in bf16, which is demanded");
  EXPECT_EQ(Check("a: h200^", job, {{0, "a", "h200-0"}}), "");
}

TEST(Placement, HoldMarksTheDevices) {
  Pool pool = PoolOf("a: 2xcpu; b: cpu");
  Hold(pool, JobId{3}, {{0, "a", "cpu-1"}, {1, "b", "cpu-0"}});
  EXPECT_EQ(pool[0].devices[0].holder, JobId{});
  EXPECT_EQ(pool[0].devices[1].holder, JobId{3});
  EXPECT_EQ(pool[1].devices[0].holder, JobId{3});
}

}  // namespace
}  // namespace trainyard::core
