// Tests pending stops and claims.
#include "server/core/yard/stops.h"

#include <gtest/gtest.h>

namespace trainyard::core {
namespace {

constexpr AttemptId kFirst{JobId{1}, 1};
constexpr AttemptId kOther{JobId{2}, 1};

PendingStop StopFor(int64_t claimant, std::optional<int64_t> step = std::nullopt) {
  PendingStop stop;
  stop.claimant = JobId{claimant};
  stop.asked_at_step = step;
  return stop;
}

TEST(Stops, OnlyACheckpointFromTheRequestOnAnswersIt) {
  Stops stops;
  EXPECT_FALSE(stops.IsAnsweredBy(kFirst, 100)) << "nothing was asked";
  stops.Ask(kFirst, StopFor(9, 100));
  EXPECT_FALSE(stops.IsAnsweredBy(kFirst, 99));
  EXPECT_TRUE(stops.IsAnsweredBy(kFirst, 100)) << "nothing is lost by it";
  EXPECT_FALSE(stops.IsAnsweredBy(kOther, 100));
  stops.Remove(kFirst);
  EXPECT_FALSE(stops.IsAnsweredBy(kFirst, 100));
}

TEST(Stops, WhereNoStepWasKnownTheFirstReportBeforeTheRequestCounts) {
  Stops stops;
  stops.Ask(kFirst, StopFor(9));
  EXPECT_TRUE(stops.IsAnsweredBy(kFirst, 1)) << "better than to wait in vain";
  stops.NoteStepBeforeRequest(kFirst, 50);
  stops.NoteStepBeforeRequest(kFirst, 70);
  EXPECT_FALSE(stops.IsAnsweredBy(kFirst, 49));
  EXPECT_TRUE(stops.IsAnsweredBy(kFirst, 50));
}

TEST(Stops, AStopForNobodysSakeTakesThePlaceOfOneForAJobs) {
  Stops stops;
  PendingStop preempt = StopFor(9, 100);
  preempt.deadline_us = 60;
  stops.Ask(kFirst, preempt);
  PendingStop drain;
  drain.reason = StopReason::kDrain;
  drain.deadline_us = 90;
  EXPECT_TRUE(stops.Replace(kFirst, drain));
  EXPECT_EQ(stops.Find(kFirst)->reason, StopReason::kDrain);
  EXPECT_EQ(stops.Find(kFirst)->deadline_us, 60) << "it has been asked to go by then";
  EXPECT_FALSE(stops.IsAnsweredBy(kFirst, 99));
  EXPECT_TRUE(stops.StopsFor(JobId{9}).empty());
  drain.reason = StopReason::kPreempt;
  EXPECT_FALSE(stops.Replace(kFirst, drain)) << "the first one will do";
}

TEST(Stops, TheLastClaimOfADeviceStands) {
  Stops stops;
  const DeviceKey a{"lab-1", "cpu-0"}, b{"lab-2", "cpu-0"};
  EXPECT_FALSE(stops.has_claims());
  stops.Claim(JobId{1}, {a, b});
  stops.Claim(JobId{2}, {b});
  EXPECT_EQ(stops.ClaimOf(a), JobId{1});
  EXPECT_EQ(stops.ClaimOf(b), JobId{2});
  EXPECT_EQ(stops.DropClaims(JobId{1}), std::set<std::string>{"lab-1"});
  EXPECT_EQ(stops.ClaimOf(a), JobId{});
  EXPECT_EQ(stops.ClaimOf(b), JobId{2});
  EXPECT_TRUE(stops.has_claims());
}

TEST(Stops, AClaimIsIdleOnceNothingMoreIsToCome) {
  Stops stops;
  const DeviceKey a{"lab-1", "cpu-0"}, b{"lab-1", "cpu-1"};
  stops.Claim(JobId{7}, {a});
  stops.Claim(JobId{8}, {b});
  stops.Ask(kFirst, StopFor(7));
  EXPECT_EQ(stops.StopsFor(JobId{7}), std::vector<AttemptId>{kFirst});
  EXPECT_EQ(stops.IdleClaimants({}), std::set<JobId>{JobId{8}});
  EXPECT_EQ(stops.IdleClaimants({b}), std::set<JobId>{}) << "whoever holds it is on its way out";
  stops.Remove(kFirst);
  EXPECT_EQ(stops.IdleClaimants({b}), std::set<JobId>{JobId{7}});
}

TEST(Stops, AJobThatShrinksWaitsForItsOwnStop) {
  Stops stops;
  stops.Claim(JobId{1}, {{"lab-1", "cpu-0"}});
  stops.Ask(kFirst, StopFor(9));
  EXPECT_EQ(stops.IdleClaimants({}), std::set<JobId>{});
}

}  // namespace
}  // namespace trainyard::core
