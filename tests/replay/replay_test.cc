// Tests the replay itself, on workloads small enough to be worked out by hand, and the properties
// in which the full policy claims to be better, on the generated workloads.
#include "tests/replay/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "tests/replay/generators.h"
#include "tests/replay/score.h"

namespace trainyard::replay {
namespace {

using core::kHour;
using core::kMinute;
using core::kSecond;
using ::testing::HasSubstr;

constexpr core::PolicyOptions kFifo{false, false, false, false, false};
constexpr core::PolicyOptions kPriority{true, false, false, false, false};
constexpr core::PolicyOptions kFull{};

Trace OneWorker(int32_t devices, const std::string& jobs) {
  auto trace = ParseTrace(absl::StrCat("{\"workers\": {\"devices\": ", devices, "}}\n", jobs));
  TY_CHECK_OK(trace.status());
  return *std::move(trace);
}

ReplayResult MustReplay(const Trace& trace, const core::PolicyOptions& policy) {
  ReplayOptions options;
  options.policy = policy;
  auto result = Replay(trace, options);
  TY_CHECK_OK(result.status());
  return *std::move(result);
}

Trace Generated(absl::string_view name, uint64_t seed) {
  auto trace = GenerateTrace(name, {.seed = seed});
  TY_CHECK_OK(trace.status());
  return *std::move(trace);
}

TEST(Replay, AJobTakesItsStartAndItsShareOfTheWork) {
  const Trace trace =
      OneWorker(4, R"({"job": {"submit_s": 3, "devices": 4, "work_s": 400, "start_s": 10}})");
  const ReplayResult result = MustReplay(trace, kFull);
  ASSERT_EQ(result.jobs.size(), 1u);
  EXPECT_EQ(result.jobs[0].state, "SUCCEEDED");
  EXPECT_EQ(result.jobs[0].placed_us, 3 * kSecond);
  EXPECT_EQ(result.jobs[0].end_us, (3 + 10 + 100) * kSecond);
  EXPECT_EQ(result.jobs[0].device_time_us, 4 * (110 * kSecond));
  EXPECT_EQ(result.makespan_us, 113 * kSecond);
}

// There are two devices, and jobs run first in, first out: anna has both for 100 s, then ben has
// one for 100 s. In the first 100 s one device is due to each of them. After that only ben wants
// one, and it is due to him.
TEST(Replay, SharesAreMeasuredBesideWhatIsDue) {
  const Trace trace = OneWorker(2, R"(
{"job": {"submit_s": 0, "user": "anna", "work_s": 100, "start_s": 0}}
{"job": {"submit_s": 0, "user": "anna", "work_s": 100, "start_s": 0}}
{"job": {"submit_s": 0, "user": "ben", "work_s": 100, "start_s": 0}}
)");
  const ReplayResult result = MustReplay(trace, kFifo);
  EXPECT_EQ(result.makespan_us, 200 * kSecond);
  ASSERT_EQ(result.shares.size(), 2u);
  EXPECT_EQ(result.shares[0], (UserShare{"anna", 200 * kSecond, 100 * kSecond}));
  EXPECT_EQ(result.shares[1], (UserShare{"ben", 100 * kSecond, 200 * kSecond}));
  const Score score = ScoreOf(trace, result);
  EXPECT_EQ(score.use_until_end, 750);
  EXPECT_EQ(score.least_served, 500);
  EXPECT_EQ(score.least_served_user, "ben");
  // (1 + 0.5)^2 / (2 (1 + 0.25)) = 0.9.
  EXPECT_EQ(score.fairness, 900);
  EXPECT_EQ(WaitOf(score, "all").max, 100 * kSecond);
}

TEST(Replay, WhoIsPreemptedLosesWhatNoCheckpointHolds) {
  const std::string rest = R"(
{"job": {"submit_s": 1000, "priority": 10, "work_s": 100}})";
  const ReplayResult with =
      MustReplay(OneWorker(1, R"({"job": {"submit_s": 0, "work_s": 2000}})" + rest), kFull);
  EXPECT_EQ(with.preempted.stops, 1);
  EXPECT_EQ(with.preempted.work_us, 0);
  EXPECT_EQ(with.jobs[0].preemptions, 1);
  const ReplayResult without = MustReplay(
      OneWorker(1, R"({"job": {"submit_s": 0, "work_s": 2000, "saves": false}})" + rest), kFull);
  EXPECT_EQ(without.preempted.stops, 1);
  // The job started after 5 s. It was asked to stop at 1,000 s, and the server waited in vain for a
  // minute.
  EXPECT_EQ(without.preempted.work_us, (1000 - 5 + 60) * kSecond);
  EXPECT_EQ(without.jobs[0].lost_us, without.preempted.work_us);
}

TEST(Replay, WaitingIsCountedOnceNothingHoldsTheJobBack) {
  const ReplayResult result = MustReplay(OneWorker(4, R"(
{"job": {"submit_s": 0, "work_s": 100, "start_s": 0, "array": 3}}
{"job": {"submit_s": 0, "work_s": 100, "after_ok": [1]}}
{"job": {"submit_s": 0, "work_s": 100, "begin_s": 500}}
)"),
                                         kFull);
  ASSERT_EQ(result.jobs.size(), 5u);
  EXPECT_EQ(result.jobs[3].ready_us, 100 * kSecond);
  EXPECT_EQ(result.jobs[3].placed_us, 100 * kSecond);
  EXPECT_EQ(result.jobs[4].ready_us, 500 * kSecond);
  EXPECT_EQ(result.jobs[4].placed_us, 500 * kSecond);
}

TEST(Replay, ATraceThatCannotEndIsToldWithTheJobThatWaits) {
  ReplayOptions options;
  const auto result =
      Replay(OneWorker(2, R"({"job": {"submit_s": 0, "devices": 3, "work_s": 100}})"), options);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(result.status().message(), HasSubstr("1 jobs are unfinished"));
  EXPECT_THAT(result.status().message(), HasSubstr("jobs/1 (job 1 of the trace)"));
}

TEST(Replay, TwoReplaysGiveTheSameHistory) {
  for (const char* name : {"lab-day", "hostile-mix"}) {
    const Trace trace = Generated(name, 3);
    std::vector<std::string> histories(2);
    std::vector<ReplayResult> results;
    for (std::string& history : histories) {
      ReplayOptions options;
      options.on_event = [&history](const core::EventRecord& event) {
        absl::StrAppend(&history, event.time_us, event.resource, event.type, event.message, "\n");
      };
      auto result = Replay(trace, options);
      ASSERT_TRUE(result.ok()) << result.status();
      results.push_back(*std::move(result));
    }
    EXPECT_TRUE(results[0].SameHistory(results[1])) << name;
    EXPECT_FALSE(histories[0].empty());
    EXPECT_TRUE(histories[0] == histories[1]) << name;
  }
}

// Tests what the full policy promises, against the policies that lack each promise, on several
// days, because one day proves little.
class Claims : public ::testing::TestWithParam<int> {
 protected:
  Score Play(const Trace& trace, const core::PolicyOptions& policy) {
    return ScoreOf(trace, MustReplay(trace, policy));
  }
  uint64_t seed() const { return static_cast<uint64_t>(GetParam()); }
};

TEST_P(Claims, SmallJobsDoNotStarveGangsAndOneUserDoesNotStarveTheOthers) {
  const Trace trace = Generated("hostile-mix", seed());
  const Score fifo = Play(trace, kFifo);
  const Score full = Play(trace, kFull);
  EXPECT_EQ(full.ended_well, fifo.ended_well);
  // The median wait of gangs is at most half, though first in, first out makes all wait for gangs.
  EXPECT_LE(WaitOf(full, "8 devices").p50 * 2, WaitOf(fifo, "8 devices").p50);
  EXPECT_LE(WaitOf(full, "all").p50 * 5, WaitOf(fifo, "all").p50);
  EXPECT_GE(full.fairness, 980);
  EXPECT_LE(fifo.fairness, 900);
  EXPECT_GE(full.least_served, fifo.least_served * 3 / 2);
  // The price is small: checkpoints and restarts make hardly any more devices idle.
  EXPECT_GE(full.use_until_last_submit, fifo.use_until_last_submit - 10);
}

TEST_P(Claims, UrgentJobsHardlyWaitAndWhoMakesRoomLosesLittle) {
  for (const char* name : {"hostile-mix", "lab-day"}) {
    const Trace trace = Generated(name, seed());
    const Score priority = Play(trace, kPriority);
    const Score full = Play(trace, kFull);
    EXPECT_EQ(full.ended_well, priority.ended_well) << name;
    EXPECT_GT(full.preempted.stops, 0) << name;
    // The minimum runtime of others, and the wait for their checkpoints.
    EXPECT_LE(WaitOf(full, "priority 10").max, 7 * kMinute) << name;
    EXPECT_LT(WaitOf(full, "priority 10").max, WaitOf(priority, "priority 10").max) << name;
    // A checkpoint of 45 s does not fit into the grace of a stop, so its 45 s are done again.
    EXPECT_LE(full.lost_most_us, 5 * kMinute) << name;
    EXPECT_LE(full.preempted.work_us + full.resized.work_us, 2 * kHour) << name;
  }
}

TEST_P(Claims, ALabSharesItsServerMoreFairly) {
  const Trace trace = Generated("lab-day", seed());
  const Score full = Play(trace, kFull);
  EXPECT_GT(full.fairness, Play(trace, kFifo).fairness);
  EXPECT_GT(full.fairness, Play(trace, kPriority).fairness);
}

// Wide gangs of low priority wait long behind urgent jobs; the devices that they keep meanwhile do
// not idle.
TEST(Days, ALabUsesItsServerBetterThanOthersDoAndThanWithoutGuests) {
  core::PolicyOptions no_guests;
  no_guests.guests = false;
  const auto use = [](const core::PolicyOptions& policy) {
    int64_t sum = 0;
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      const Trace trace = Generated("lab-day", seed);
      sum += ScoreOf(trace, MustReplay(trace, policy)).use_until_last_submit;
    }
    return sum / 4;
  };
  const int64_t full = use(kFull);
  EXPECT_GE(full, use(kFifo));
  EXPECT_GE(full, use(kPriority));
  EXPECT_GE(full, use(no_guests) + 100);
}

INSTANTIATE_TEST_SUITE_P(Days, Claims, ::testing::Values(1, 2, 3));

TEST(Score, SpreadsGoByNearestRank) {
  std::vector<int64_t> samples;
  for (int64_t i = 200; i >= 1; --i) samples.push_back(i);
  const Spread spread = SpreadOf(samples);
  EXPECT_EQ(spread.p50, 100);
  EXPECT_EQ(spread.p90, 180);
  EXPECT_EQ(spread.p99, 198);
  EXPECT_EQ(spread.max, 200);
  EXPECT_EQ(spread.mean, 100);
  EXPECT_EQ(SpreadOf({}).count, 0);
}

}  // namespace
}  // namespace trainyard::replay
