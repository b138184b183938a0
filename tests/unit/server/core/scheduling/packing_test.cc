// Tests on which workers a gang is placed.
#include "server/core/scheduling/packing.h"

#include <gtest/gtest.h>

#include "tests/unit/server/core/scheduling/policy_fixture.h"

namespace trainyard::core {
namespace {

struct Asked {
  std::string type = {};
  bool mixed = false;
  bool spread = false;
  int32_t least = 0;  // 0: all
  int64_t memory_gib = 0;
  std::map<std::string, std::string> labels = {};
  std::set<std::string> reservations = {};
  std::string reservation = {};
  bool one_host = false;
};

std::string Placed(const std::string& pool_text, int32_t count, const Asked& asked = {}) {
  World world(pool_text);
  QueuedJob job = Job(1, count, asked.type);
  job.demand.mixed = asked.mixed;
  job.demand.spread = asked.spread;
  job.demand.one_host = asked.one_host;
  job.demand.min_count = asked.least;
  job.demand.memory_bytes = asked.memory_gib << 30;
  job.demand.labels = asked.labels;
  job.reservations = asked.reservations;
  job.reservation = asked.reservation;
  world.Submit(job);
  const Plan plan = world.MakePlan();
  if (plan.placements.empty()) return "none";
  EXPECT_TRUE(CheckPlacement(world.pool, job, plan.placements[0].ranks).ok());
  return Text(plan.placements[0].ranks);
}

TEST(Packing, TakesTheWorkerThatTheGangFillsBest) {
  EXPECT_EQ(Placed("a: 4xcpu; b: 2xcpu; c: 3xcpu", 2), "b:cpu-0 b:cpu-1");
}

TEST(Packing, TakesTheIslandThatTheGangFillsBest) {
  EXPECT_EQ(Placed("a: 4xh200 | 4xh200; b: 3xh200 | 2xh200", 2), "b:h200-3 b:h200-4");
  EXPECT_EQ(Placed("a: h200=9 3xh200 | 4xh200; b: 4xh200", 3), "a:h200-1 a:h200-2 a:h200-3");
}

TEST(Packing, PrefersOneWorkerToIslandsOfSeveral) {
  // No island holds six, but worker b does, with islands as whole as possible.
  EXPECT_EQ(Placed("a: 4xh200; b: 2xh200 | 4xh200; c: 4xh200", 6),
            "b:h200-2 b:h200-3 b:h200-4 b:h200-5 b:h200-0 b:h200-1");
}

TEST(Packing, SpansAsFewWorkersAsPossible) {
  // The gang is split into 4 + 1: the worker with the most free slots, then the one that the last
  // rank fills best.
  EXPECT_EQ(Placed("a: cpu; b: 4xcpu; c: 3xcpu", 5), "b:cpu-0 b:cpu-1 b:cpu-2 b:cpu-3 a:cpu-0");
}

TEST(Packing, SpreadsOverAsManyWorkersAsPossibleEvenly) {
  EXPECT_EQ(Placed("a: 4xcpu; b: cpu; c: 4xcpu", 5, {.spread = true}),
            "a:cpu-0 a:cpu-1 c:cpu-0 c:cpu-1 b:cpu-0");
  EXPECT_EQ(Placed("a: cpu; b: 2xcpu; c: 3xcpu", 2, {.spread = true}), "c:cpu-0 b:cpu-0");
}

TEST(Packing, OneHostHoldsAllOfAGangOrNone) {
  EXPECT_EQ(Placed("a: cpu; b: 2xcpu; c: 3xcpu", 2, {.one_host = true}), "b:cpu-0 b:cpu-1");
  EXPECT_EQ(Placed("a: 2xcpu; b: 2xcpu", 3, {.one_host = true}), "none");
  EXPECT_EQ(Placed("a: 2xgtx titan; b: gtx", 3, {.one_host = true}), "none");
  EXPECT_EQ(Placed("a: 2xgtx titan; b: 2xgtx", 3, {.mixed = true, .one_host = true}),
            "a:gtx-0 a:gtx-1 a:titan-2");
}

TEST(Packing, AllRanksOrNone) {
  EXPECT_EQ(Placed("a: cpu; b: 2xcpu", 4), "none");
}

TEST(Packing, TypesMixOnlyWhenAskedTo) {
  const std::string pool = "a: 2xgtx; b: titan";
  EXPECT_EQ(Placed(pool, 3), "none");
  EXPECT_EQ(Placed(pool, 3, {.mixed = true}), "a:gtx-0 a:gtx-1 b:titan-0");
  EXPECT_EQ(Placed(pool, 2, {.mixed = true}), "a:gtx-0 a:gtx-1") << "one type where that does";
  EXPECT_EQ(Placed(pool, 2, {.type = "titan"}), "none");
  EXPECT_EQ(Placed(pool, 1, {.type = "titan"}), "b:titan-0");
}

TEST(Packing, WithoutATypeItTakesTheOneThatSpansFewestWorkers) {
  EXPECT_EQ(Placed("a: gtx; b: gtx; c: 2xtitan", 2), "c:titan-0 c:titan-1");
}

TEST(Packing, HeldUnfitCordonedAndClaimedDevicesAreNotOffered) {
  const std::string pool = "a: cpu=9 cpu! cpu cpu~5; b-: 4xcpu";
  EXPECT_EQ(Placed(pool, 1), "a:cpu-2");
  EXPECT_EQ(Placed(pool, 2), "none");
}

TEST(Packing, WantsMemoryAndLabels) {
  const std::string pool = "a[disk=ssd]: h200*40 h200*80; b: h200*80";
  EXPECT_EQ(Placed(pool, 2, {.memory_gib = 80}), "a:h200-1 b:h200-0");
  EXPECT_EQ(Placed(pool, 1, {.memory_gib = 80, .labels = {{"disk", "ssd"}}}), "a:h200-1");
  EXPECT_EQ(Placed(pool, 1, {.labels = {{"disk", "hdd"}}}), "none");
}

TEST(Packing, ReservedDevicesAreForThoseWhoAreEntitled) {
  const std::string pool = "a: cpu@night cpu; b: cpu@day";
  EXPECT_EQ(Placed(pool, 2), "none");
  EXPECT_EQ(Placed(pool, 2, {.reservations = {"night"}}), "a:cpu-0 a:cpu-1");
  EXPECT_EQ(Placed(pool, 2, {.reservations = {"night"}, .reservation = "night"}), "none");
  EXPECT_EQ(Placed(pool, 1, {.reservations = {"night"}, .reservation = "night"}), "a:cpu-0");
}

TEST(Packing, DevicesOfAReservationToComeAreTakenLast) {
  World world("a: 2xcpu; b: 2xcpu");
  world.reservations["night"] = {"night",
                                 world.now.wall_us + kHour,
                                 world.now.wall_us + 2 * kHour,
                                 {{"a", "cpu-0"}},
                                 {"user:ben"},
                                 "user:ops"};
  world.Submit(Job(1, 2));
  EXPECT_EQ(Text(world.MakePlan()), "place 1 on b:cpu-0 b:cpu-1");
  world.queue.Remove(JobId{1});
  world.Submit(Job(2, 4));
  EXPECT_EQ(Text(world.MakePlan()), "place 2 on a:cpu-0 a:cpu-1 b:cpu-0 b:cpu-1");
}

TEST(Packing, AnElasticGangTakesWhatThereIs) {
  EXPECT_EQ(Placed("a: 3xcpu", 8, {.least = 2}), "a:cpu-0 a:cpu-1 a:cpu-2");
  EXPECT_EQ(Placed("a: cpu", 8, {.least = 2}), "none");
  EXPECT_EQ(Placed("a: 2xgtx; b: 3xtitan", 8, {.least = 2}), "b:titan-0 b:titan-1 b:titan-2");
  EXPECT_EQ(Placed("a: 2xgtx; b: 3xtitan", 4, {.mixed = true, .least = 2}),
            "b:titan-0 b:titan-1 b:titan-2 a:gtx-0");
}

}  // namespace
}  // namespace trainyard::core
