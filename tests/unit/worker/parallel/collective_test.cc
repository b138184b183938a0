#include "worker/parallel/collective.h"

#include "common/base/errors.h"
#include "gtest/gtest.h"

namespace trainyard::parallel {
namespace {

constexpr Collective kCall{.rank = 0, .operation = "all_reduce", .sequence = 27};

TEST(Collective, ErrorsTellProgramsWhoAndWhatToo) {
  const absl::Status late = Annotate(CollectiveTimedOut(kCall, 3, absl::Seconds(10)), "step 14");
  EXPECT_EQ(late.message(),
            "step 14: rank 0: all_reduce 27: rank 3 did not take part within 10.0s");
  EXPECT_EQ(ErrorReason(late), kReasonCollectiveTimeout);
  EXPECT_EQ(BlameOf(late), (Blame{.peer = 3, .operation = "all_reduce", .sequence = 27}));
  EXPECT_EQ(BlameOf(PeerLost(kCall, -1, "closed"))->peer, -1);
  EXPECT_EQ(BlameOf(CollectiveMismatch(kCall, "sizes"))->sequence, 27);
}

TEST(WaitLimit, RunsOutWhereItIsLookedAtAllTheTime) {
  constexpr absl::Duration kStart = absl::Seconds(1000);
  WaitLimit limit(kStart, absl::Seconds(10));
  for (int tick = 1; tick < 100; ++tick) {
    const absl::Duration passed = tick * absl::Milliseconds(100);
    ASSERT_EQ(limit.Left(kStart + passed), absl::Seconds(10) - passed);
  }
  EXPECT_EQ(limit.Left(kStart + absl::Seconds(10)), absl::ZeroDuration());
  EXPECT_EQ(limit.Left(kStart + absl::Seconds(10.5)), absl::ZeroDuration());
}

TEST(WaitLimit, DoesNotCountTimeInWhichNobodyLooked) {
  WaitLimit limit(absl::Seconds(1000), absl::Seconds(10));
  EXPECT_EQ(limit.Left(absl::Seconds(1000.5)), absl::Seconds(9.5));
  EXPECT_EQ(limit.Left(absl::Seconds(1000.5) + absl::Hours(8)), absl::Seconds(9.5));
}

TEST(Collective, OtherErrorsBlameNobody) {
  EXPECT_EQ(BlameOf(absl::OkStatus()), std::nullopt);
  EXPECT_EQ(BlameOf(absl::DeadlineExceededError("rank 0: all_reduce 27")), std::nullopt);
}

}  // namespace
}  // namespace trainyard::parallel
