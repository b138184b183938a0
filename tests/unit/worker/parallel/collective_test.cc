// Tests that the errors of collectives carry what programs need to know.
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

TEST(Collective, OtherErrorsBlameNobody) {
  EXPECT_EQ(BlameOf(absl::OkStatus()), std::nullopt);
  EXPECT_EQ(BlameOf(absl::DeadlineExceededError("rank 0: all_reduce 27")), std::nullopt);
}

}  // namespace
}  // namespace trainyard::parallel
