#include "server/core/placement.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace trainyard::core {
namespace {

PoolWorker Worker(const std::string& name, int count, const std::string& type = "cpu") {
  PoolWorker worker;
  worker.name = name;
  for (int i = 0; i < count; ++i) {
    PoolDevice device;
    device.name = absl::StrCat(type, "-", i);
    device.type = type;
    worker.devices.push_back(device);
  }
  return worker;
}

QueuedJob Job(int32_t count, const std::string& type = "", bool mixed = false) {
  QueuedJob job;
  job.id = JobId{1};
  job.demand = {count, type, mixed};
  return job;
}

std::string Placed(const Pool& pool, const QueuedJob& job) {
  const auto ranks = PlaceGang(pool, job);
  if (!ranks.has_value()) return "none";
  EXPECT_TRUE(CheckPlacement(pool, job.demand, *ranks).ok());
  std::string text;
  for (const RankPlacement& rank : *ranks) {
    absl::StrAppend(&text, text.empty() ? "" : " ", rank.worker, ":", rank.device);
  }
  return text;
}

TEST(Placement, TakesTheWorkerThatTheGangFillsBest) {
  EXPECT_EQ(Placed({Worker("a", 4), Worker("b", 2), Worker("c", 3)}, Job(2)), "b:cpu-0 b:cpu-1");
}

TEST(Placement, SpansAsFewWorkersAsPossible) {
  // 4 + 1: the fullest, then the one that the last rank fills best.
  EXPECT_EQ(Placed({Worker("a", 1), Worker("b", 4), Worker("c", 3)}, Job(5)),
            "b:cpu-0 b:cpu-1 b:cpu-2 b:cpu-3 a:cpu-0");
}

TEST(Placement, AllRanksOrNone) {
  EXPECT_EQ(Placed({Worker("a", 1), Worker("b", 2)}, Job(4)), "none");
}

TEST(Placement, TypesMixOnlyWhenAskedTo) {
  const Pool pool = {Worker("a", 2, "gtx-1080"), Worker("b", 1, "titan-x")};
  EXPECT_EQ(Placed(pool, Job(3)), "none");
  EXPECT_EQ(Placed(pool, Job(3, "", true)), "a:gtx-1080-0 a:gtx-1080-1 b:titan-x-0");
  EXPECT_EQ(Placed(pool, Job(2, "titan-x")), "none");
  EXPECT_EQ(Placed(pool, Job(1, "titan-x")), "b:titan-x-0");
}

TEST(Placement, HeldUnhealthyAndCordonedDevicesAreNotOffered) {
  Pool pool = {Worker("a", 3), Worker("b", 4)};
  pool[0].devices[0].holder = JobId{9};
  pool[0].devices[1].usable = false;
  pool[1].takes_ranks = false;
  EXPECT_EQ(Placed(pool, Job(1)), "a:cpu-2");
  EXPECT_EQ(Placed(pool, Job(2)), "none");
}

TEST(Placement, AvoidedDevicesAreTheLastResort) {
  const Pool pool = {Worker("a", 2)};
  QueuedJob job = Job(1);
  job.avoid = {{"a", "cpu-0"}};
  EXPECT_EQ(Placed(pool, job), "a:cpu-1");
  job.demand.count = 2;
  EXPECT_EQ(Placed(pool, job), "a:cpu-0 a:cpu-1");
}

TEST(Placement, APlacementIsCheckedBeforeItCounts) {
  const Pool pool = {Worker("a", 2), Worker("b", 1, "h200")};
  const auto check = [&pool](const Demand& demand, std::vector<RankPlacement> ranks) {
    return std::string(CheckPlacement(pool, demand, ranks).message());
  };
  EXPECT_EQ(check({2, "", false}, {{0, "a", "cpu-0"}}), "1 ranks placed; the gang has 2");
  EXPECT_EQ(check({2, "", false}, {{0, "a", "cpu-0"}, {1, "a", "cpu-0"}}),
            "device cpu-0 of a was given out twice");
  EXPECT_EQ(check({1, "", false}, {{0, "a", "cpu-7"}}), "device cpu-7 of a is not on offer");
  EXPECT_EQ(check({1, "", false}, {{0, "z", "cpu-0"}}), "worker z is not in the pool");
  EXPECT_EQ(check({2, "", false}, {{0, "a", "cpu-0"}, {1, "b", "h200-0"}}),
            "devices of different types; the demand is not mixed");
  EXPECT_EQ(check({1, "h200", false}, {{0, "a", "cpu-0"}}), "devices of another type than h200");
  EXPECT_EQ(check({2, "", true}, {{0, "a", "cpu-0"}, {1, "b", "h200-0"}}), "");
}

}  // namespace
}  // namespace trainyard::core
