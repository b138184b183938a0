// Tests steps, errors and changes of plan, which every exchange must handle in the same way.
#include "tests/unit/worker/parallel/exchange_cases.h"

#include <atomic>
#include <bit>
#include <cstdint>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/base/env.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "gmock/gmock.h"
#include "tests/unit/worker/parallel/exchange_rank.h"

namespace trainyard::parallel {
namespace {

using exchange_rank::ExpectedSums;
using exchange_rank::Gang;
using exchange_rank::kBuckets;
using exchange_rank::kElements;
using exchange_rank::kGradients;
using exchange_rank::OneTermEach;
using exchange_rank::Rank;
using exchange_rank::RunRanks;
using exchange_rank::Terms;
using exchange_rank::TermsOfHosting;
using exchange_rank::TermValue;
using exchange_rank::UnevenTerms;
using exchange_rank::Unless;
using ::testing::HasSubstr;

Gang GangOf(const std::tuple<ExchangeKind, int, bool>& of) {
  return {.kind = std::get<0>(of), .ranks = std::get<1>(of), .is_sharded = std::get<2>(of)};
}

void ExpectAllOk(const std::vector<absl::Status>& statuses) {
  for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
}

// Waits until all ranks have come here, or `timeout` has passed.
class Meeting {
 public:
  explicit Meeting(int ranks) : missing_(ranks) {}
  void Arrive() {
    if (missing_.fetch_sub(1) == 1) all_.Notify();
  }
  void Await() { all_.WaitForNotificationWithTimeout(absl::Seconds(20)); }

 private:
  std::atomic<int> missing_;
  absl::Notification all_;
};

}  // namespace

TEST_P(ExchangeTest, SumsHaveTheBitsOfThePlanEvaluatedInOnePlace) {
  const Gang gang = GangOf(GetParam());
  if (gang.ranks == 4) {
    // Another order gives other bits, so the sums below depend on the order.
    ExchangePlan other = UnevenTerms(gang.ranks).plan;
    const std::vector<float> right = ExpectedSums(other, 1);
    other.sum = PlanRankSum(std::accumulate(other.terms.begin(), other.terms.end(), 0));
    EXPECT_NE(right, ExpectedSums(other, 1));
  }
  for (const Terms& terms : {OneTermEach(gang.ranks), UnevenTerms(gang.ranks)}) {
    ExpectAllOk(RunRanks(gang, terms, [](Rank& rank) -> absl::Status {
      for (int64_t step = 1; step <= 4; ++step) TY_RETURN_IF_ERROR(rank.Step(step));
      return absl::OkStatus();
    }));
  }
}

TEST_P(ExchangeTest, ThePlanChangesBetweenSteps) {
  const Gang gang = GangOf(GetParam());
  ExpectAllOk(RunRanks(gang, OneTermEach(gang.ranks), [&gang](Rank& rank) -> absl::Status {
    TY_RETURN_IF_ERROR(rank.Step(1));
    TY_RETURN_IF_ERROR(rank.SetTerms(UnevenTerms(gang.ranks)));
    TY_RETURN_IF_ERROR(rank.Step(2));
    TY_RETURN_IF_ERROR(rank.Step(3));
    TY_RETURN_IF_ERROR(rank.SetTerms(OneTermEach(gang.ranks)));
    return rank.Step(4);
  }));
}

TEST_P(ExchangeTest, BlocksBelongToOneRankEachOrToAll) {
  const Gang gang = GangOf(GetParam());
  ExpectAllOk(RunRanks(gang, OneTermEach(gang.ranks), [&gang](Rank& rank) -> absl::Status {
    EXPECT_EQ(rank.exchange().is_sharded(), gang.is_sharded);
    for (size_t bucket = 0; bucket < kBuckets.size(); ++bucket) {
      const Bucket own = rank.exchange().OwnBlock(bucket);
      const Bucket all = kBuckets[bucket];
      if (!gang.is_sharded || all.begin >= kGradients) {
        EXPECT_EQ(own, all);
        continue;
      }
      // The blocks are as even as possible, larger ones first.
      const int64_t each = all.size() / gang.ranks, rest = all.size() % gang.ranks;
      const int64_t begin = all.begin + rank.rank() * each + std::min<int64_t>(rank.rank(), rest);
      EXPECT_EQ(own.begin, begin);
      EXPECT_EQ(own.size(), each + (rank.rank() < rest ? 1 : 0));
    }
    return absl::OkStatus();
  }));
}

TEST_P(ExchangeTest, BallotsArriveBitForBit) {
  const Gang gang = GangOf(GetParam());
  // As two floats, some of these doubles are signalling NaNs, which sums and copies by the
  // processor would change.
  const auto ballot_of = [](int rank) {
    return std::vector<double>{
        0.1 * (rank + 1), -0.0, std::numeric_limits<double>::denorm_min(),
        std::bit_cast<double>(uint64_t{0x7FA0'0001'7FA0'0002} + static_cast<uint64_t>(rank)),
        std::numeric_limits<double>::infinity()};
  };
  ExpectAllOk(RunRanks(gang, OneTermEach(gang.ranks), [&](Rank& rank) -> absl::Status {
    for (int64_t step = 1; step <= 2; ++step) {
      TY_RETURN_IF_ERROR(rank.Step(step, ballot_of(rank.rank())));
      std::vector<double> expected;
      for (int of = 0; of < gang.ranks; ++of) {
        for (const double value : ballot_of(of)) expected.push_back(value);
      }
      const bool same =
          std::equal(rank.ballots().begin(), rank.ballots().end(), expected.begin(), expected.end(),
                     [](double a, double b) {
                       return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
                     });
      TY_RETURN_IF_ERROR(Unless(same, "there are other ballots"));
    }
    // The length of ballots may change from step to step.
    return rank.Step(3, {1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0});
  }));
}

TEST_P(ExchangeTest, RanksThatAreSlowAreWaitedFor) {
  const Gang gang = GangOf(GetParam());
  Meeting others(gang.ranks - 1 > 0 ? gang.ranks - 1 : 1);
  ExpectAllOk(RunRanks(gang, OneTermEach(gang.ranks), [&](Rank& rank) -> absl::Status {
    const std::vector<float> expected = ExpectedSums(OneTermEach(gang.ranks).plan, 1);
    const bool is_slow = rank.rank() == gang.ranks - 1;
    if (is_slow && gang.ranks > 1) others.Await();
    TY_RETURN_IF_ERROR(rank.Begin(1, {1.0}));
    TY_RETURN_IF_ERROR(rank.Backward(1));
    // These ranks are done with backward before the slow one has begun.
    if (!is_slow) others.Arrive();
    TY_RETURN_IF_ERROR(rank.LandAll(expected));
    TY_RETURN_IF_ERROR(rank.exchange().End());
    std::vector<double> ballots(static_cast<size_t>(gang.ranks));
    return rank.exchange().Finish(absl::MakeSpan(ballots));
  }));
}

TEST_P(ExchangeTest, StepsAreFinishedInOrderAsLateAsTheLagAllows) {
  const Gang gang = GangOf(GetParam());
  ExpectAllOk(RunRanks(gang, OneTermEach(gang.ranks), [&gang](Rank& rank) -> absl::Status {
    constexpr int64_t kStepsToDo = 5;
    int64_t finished = 0;
    const auto finish_to = [&](int64_t step) -> absl::Status {
      while (finished < step) {
        std::vector<double> ballots(static_cast<size_t>(gang.ranks));
        TY_RETURN_IF_ERROR(rank.exchange().Finish(absl::MakeSpan(ballots)));
        ++finished;
        for (size_t of = 0; of < ballots.size(); ++of) {
          EXPECT_EQ(ballots[of], 100.0 * static_cast<double>(finished) + static_cast<double>(of));
        }
      }
      return absl::OkStatus();
    };
    for (int64_t step = 1; step <= kStepsToDo; ++step) {
      const double ballot = 100.0 * static_cast<double>(step) + rank.rank();
      TY_RETURN_IF_ERROR(rank.Begin(step, {&ballot, 1}));
      TY_RETURN_IF_ERROR(rank.Backward(step));
      TY_RETURN_IF_ERROR(rank.LandAll(ExpectedSums(OneTermEach(gang.ranks).plan, step)));
      TY_RETURN_IF_ERROR(rank.exchange().End());
      TY_RETURN_IF_ERROR(finish_to(step - rank.exchange().lag()));
    }
    return finish_to(kStepsToDo);
  }));
}

TEST_P(ExchangeTest, StatisticsSayWhatWasSent) {
  const Gang gang = GangOf(GetParam());
  ExpectAllOk(RunRanks(gang, OneTermEach(gang.ranks), [&gang](Rank& rank) -> absl::Status {
    TY_RETURN_IF_ERROR(rank.Step(1));
    const absl::Duration begin = Clock::Real()->Uptime();
    TY_RETURN_IF_ERROR(rank.Step(2, {1.0, 2.0}));
    const absl::Duration time = Clock::Real()->Uptime() - begin;
    const CommStats& stats = rank.exchange().stats();
    EXPECT_GE(stats.total, absl::ZeroDuration());
    EXPECT_LE(stats.total, time);
    EXPECT_GE(stats.exposed, absl::ZeroDuration());
    EXPECT_LE(stats.exposed, stats.total);
    EXPECT_TRUE(stats.HiddenFraction() >= 0 && stats.HiddenFraction() <= 1);
    EXPECT_TRUE(stats.events.empty());
    const double share = 2.0 * (gang.ranks - 1) / gang.ranks;
    const double expected = share * static_cast<double>(kElements * sizeof(float));
    // Blocks differ by an element. Beside the arena there are ballots and short agreements.
    EXPECT_NEAR(static_cast<double>(stats.bytes_sent), expected, 1024);
    return absl::OkStatus();
  }));
}

TEST_P(ExchangeTest, EventsAreThereWhileTheyAreTraced) {
  const Gang gang = GangOf(GetParam());
  ExpectAllOk(RunRanks(gang, OneTermEach(gang.ranks), [&gang](Rank& rank) -> absl::Status {
    rank.exchange().set_tracing(true);
    const absl::Duration begin = Clock::Real()->Uptime();
    TY_RETURN_IF_ERROR(rank.Step(1));
    const absl::Duration end = Clock::Real()->Uptime();
    std::vector<int64_t> reduced, shared;
    for (const CommEvent& event : rank.exchange().stats().events) {
      EXPECT_TRUE(begin <= event.begin && event.begin <= event.end && event.end <= end);
      if (event.kind == CommEvent::Kind::kReduce) reduced.push_back(event.bucket);
      if (event.kind == CommEvent::Kind::kShare) shared.push_back(event.bucket);
    }
    // A single rank has nothing to send.
    if (gang.ranks == 1) return absl::OkStatus();
    // Every bucket is reduced once. Those of parameters are shared where each rank updates its own
    // block.
    EXPECT_THAT(reduced, ::testing::UnorderedElementsAre(0, 1, 2, 3, 4, 5));
    EXPECT_TRUE(!gang.is_sharded || shared == std::vector<int64_t>({0, 1, 2, 3}));
    rank.exchange().set_tracing(false);
    TY_RETURN_IF_ERROR(rank.Step(2));
    EXPECT_TRUE(rank.exchange().stats().events.empty());
    return absl::OkStatus();
  }));
}

TEST_P(ExchangeTest, BlocksAreGatheredForCheckpoints) {
  const Gang gang = GangOf(GetParam());
  ExpectAllOk(RunRanks(gang, OneTermEach(gang.ranks), [](Rank& rank) -> absl::Status {
    TY_RETURN_IF_ERROR(rank.Step(1));
    for (int round = 0; round < 2; ++round) {
      std::vector<float> values(static_cast<size_t>(kGradients), -1);
      for (size_t bucket = 0; bucket < kBuckets.size(); ++bucket) {
        if (kBuckets[bucket].begin >= kGradients) continue;
        const Bucket own = rank.exchange().OwnBlock(bucket);
        for (int64_t i = own.begin; i < own.end; ++i) {
          values[static_cast<size_t>(i)] = TermValue(round, 1, i);
        }
      }
      TY_RETURN_IF_ERROR(rank.exchange().GatherBlocks(absl::MakeSpan(values)));
      for (size_t i = 0; i < values.size(); ++i) {
        TY_RETURN_IF_ERROR(Unless(values[i] == TermValue(round, 1, static_cast<int64_t>(i)),
                                  "blocks are not where they belong"));
      }
    }
    return rank.Step(2);
  }));
}

TEST_P(ExchangeFaultTest, ARankThatDiesIsNamedWithTheStep) {
  const Gang gang = {.kind = GetParam(), .ranks = 2};
  const auto statuses = RunRanks(gang, OneTermEach(2), [](Rank& rank) -> absl::Status {
    TY_RETURN_IF_ERROR(rank.Step(1));
    if (rank.rank() == 1) return absl::OkStatus();  // and with it its exchange
    return rank.Step(2);
  });
  EXPECT_TRUE(statuses[1].ok()) << statuses[1];
  EXPECT_EQ(ErrorReason(statuses[0]), "PEER_LOST") << statuses[0];
  EXPECT_THAT(std::string(statuses[0].message()), HasSubstr("step 2"));
  EXPECT_THAT(std::string(statuses[0].message()), HasSubstr("rank 1 was lost"));
}

TEST_P(ExchangeFaultTest, ARankThatDiesAmidAStepEndsItForAll) {
  const Gang gang = {.kind = GetParam(), .ranks = 3, .is_sharded = true};
  const auto statuses = RunRanks(gang, OneTermEach(3), [](Rank& rank) -> absl::Status {
    TY_RETURN_IF_ERROR(rank.Step(1));
    if (rank.rank() != 1) return rank.Step(2);
    TY_RETURN_IF_ERROR(rank.Begin(2));
    rank.Write(2, 0, 1001);
    return rank.exchange().Ready(1001);
  });
  EXPECT_TRUE(statuses[1].ok()) << statuses[1];
  for (const size_t rank : {size_t{0}, size_t{2}}) {
    EXPECT_EQ(ErrorReason(statuses[rank]), "PEER_LOST") << statuses[rank];
    EXPECT_THAT(std::string(statuses[rank].message()), HasSubstr("step 2"));
  }
}

TEST_P(ExchangeFaultTest, ARankThatDoesNotGoOnTimesOutTheOthers) {
  const Gang gang = {.kind = GetParam(), .ranks = 2};
  absl::Notification gave_up;
  const auto statuses = RunRanks(gang, OneTermEach(2), [&gave_up](Rank& rank) -> absl::Status {
    TY_RETURN_IF_ERROR(rank.Step(1));
    rank.exchange().set_timeout(absl::Milliseconds(100));
    if (rank.rank() == 1) {
      TY_RETURN_IF_ERROR(rank.Begin(2));
      gave_up.WaitForNotification();
      return absl::OkStatus();
    }
    absl::Status status = rank.Step(2);
    gave_up.Notify();
    return status;
  });
  EXPECT_EQ(ErrorReason(statuses[0]), "COLLECTIVE_TIMEOUT") << statuses[0];
  EXPECT_THAT(std::string(statuses[0].message()), HasSubstr("step 2"));
}

TEST_P(ExchangeFaultTest, AnExchangeThatFailedStaysSoAndEndsSoon) {
  const Gang gang = {.kind = GetParam(), .ranks = 2};
  const auto statuses = RunRanks(gang, OneTermEach(2), [](Rank& rank) -> absl::Status {
    if (rank.rank() == 1) return absl::OkStatus();
    absl::Status status = rank.Step(1);
    EXPECT_FALSE(rank.exchange().Land(0).ok());
    EXPECT_FALSE(rank.Step(2).ok());
    return status;
  });
  EXPECT_EQ(ErrorReason(statuses[0]), "PEER_LOST") << statuses[0];
}

TEST_P(ExchangeFaultTest, OneThatIsLetGoAmidAStepDoesNotOutlastItsTimeout) {
  const Gang gang = {.kind = GetParam(), .ranks = 2};
  absl::Notification is_gone;
  const auto statuses = RunRanks(gang, OneTermEach(2), [&is_gone](Rank& rank) -> absl::Status {
    TY_RETURN_IF_ERROR(rank.Step(1));
    rank.exchange().set_timeout(absl::Milliseconds(200));
    if (rank.rank() == 1) {
      is_gone.WaitForNotification();
      return absl::OkStatus();
    }
    TY_RETURN_IF_ERROR(rank.Begin(2));
    TY_RETURN_IF_ERROR(rank.Backward(2));
    const absl::Duration begin = Clock::Real()->Uptime();
    rank.Leave();
    const absl::Duration time = Clock::Real()->Uptime() - begin;
    is_gone.Notify();
    // Far less than a hang would take.
    return Unless(time < absl::Seconds(5), absl::StrCat("took ", absl::FormatDuration(time)));
  });
  ExpectAllOk(statuses);
}

TEST_P(ExchangeFaultTest, RanksWithOtherBucketsAreToldAtOnce) {
  Gang gang = {.kind = GetParam(), .ranks = 2};
  gang.change = [](ExchangeSetup& setup) {
    if (setup.place.rank == 1) setup.buckets[1].end = setup.buckets[2].begin = 1005;
  };
  const auto statuses =
      RunRanks(gang, OneTermEach(2), [](Rank& rank) -> absl::Status { return rank.Step(1); });
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(ErrorReason(status), "COLLECTIVE_MISMATCH") << status;
  }
  EXPECT_THAT(std::string(statuses[0].message()), HasSubstr("rank 1"));
  EXPECT_THAT(std::string(statuses[1].message()), HasSubstr("rank 0"));
}

TEST_P(ExchangeFaultTest, RanksWithOtherPlansAreToldAtOnce) {
  const Gang gang = {.kind = GetParam(), .ranks = 2};
  const auto statuses = RunRanks(gang, OneTermEach(2), [](Rank& rank) -> absl::Status {
    TY_RETURN_IF_ERROR(rank.Step(1));
    // Both sums are right, for different hostings.
    const Terms one = TermsOfHosting(4, {{0, 1}, {1, 4}}),
                other = TermsOfHosting(4, {{0, 3}, {3, 4}});
    TY_RETURN_IF_ERROR(rank.SetTerms(rank.rank() == 0 ? one : other));
    return rank.Step(2);
  });
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(ErrorReason(status), "COLLECTIVE_MISMATCH") << status;
  }
  EXPECT_THAT(std::string(statuses[0].message()), HasSubstr("rank 1"));
}

}  // namespace trainyard::parallel
