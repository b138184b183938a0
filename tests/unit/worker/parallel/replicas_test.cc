// Tests that slices and hostings are as even as possible.
#include "worker/parallel/replicas.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trainyard::parallel {
namespace {

using ::testing::HasSubstr;

TEST(Replicas, SlicesAreContiguousAndCoverTheBatch) {
  for (const int64_t rows : {0, 1, 7, 64, 65, 1000}) {
    for (const int replicas : {1, 2, 3, 8}) {
      int64_t next = 0;
      for (int replica = 0; replica < replicas; ++replica) {
        const RowRange range = ReplicaRows(rows, replica, replicas);
        EXPECT_EQ(range.begin, next);
        EXPECT_GE(range.size(), rows / replicas);
        EXPECT_LE(range.size(), rows / replicas + 1);
        next = range.end;
      }
      EXPECT_EQ(next, rows);
    }
  }
}

TEST(Replicas, LargerSlicesComeFirst) {
  EXPECT_EQ(ReplicaRows(7, 0, 3), (RowRange{0, 3}));
  EXPECT_EQ(ReplicaRows(7, 1, 3), (RowRange{3, 5}));
  EXPECT_EQ(ReplicaRows(7, 2, 3), (RowRange{5, 7}));
}

TEST(Replicas, ASmallLastBatchLeavesSomeWithoutRows) {
  EXPECT_EQ(ReplicaRows(2, 0, 4).size(), 1);
  EXPECT_EQ(ReplicaRows(2, 3, 4).size(), 0);
}

TEST(Hosting, RanksHostContiguousReplicasAsEvenAsPossible) {
  EXPECT_EQ(HostedReplicas(8, 0, 3).value(), (ReplicaRange{0, 3}));
  EXPECT_EQ(HostedReplicas(8, 1, 3).value(), (ReplicaRange{3, 6}));
  EXPECT_EQ(HostedReplicas(8, 2, 3).value(), (ReplicaRange{6, 8}));
  EXPECT_EQ(HostedReplicas(1, 0, 1).value(), (ReplicaRange{0, 1}));
}

TEST(Hosting, MoreRanksThanReplicasAreRefusedWithTheNumbers) {
  const auto range = HostedReplicas(2, 0, 3);
  EXPECT_TRUE(absl::IsInvalidArgument(range.status()));
  EXPECT_THAT(std::string(range.status().message()),
              HasSubstr("2 replicas cannot occupy 3 devices"));
}

}  // namespace
}  // namespace trainyard::parallel
