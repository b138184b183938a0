// Tests that groups of a gang communicate independently, and that their errors name global ranks.
#include "worker/parallel/host/host_groups.h"

#include <cstdlib>
#include <functional>
#include <string>
#include <thread>

#include "common/base/check.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"
#include "tests/unit/worker/parallel/gang.h"
#include "worker/run_dir/rendezvous.h"

namespace trainyard::parallel {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

const Group kWhole = {};
const Group kLow = {"stage_0", {0, 1}};
const Group kHigh = {"stage_1", {2, 3}};
const Group kOdd = {"link_1", {1, 3}};

class HostGroupsTest : public ::testing::TestWithParam<HostTransport> {
 protected:
  HostGroupOptions OptionsOf(int rank) const {
    return {.transport = GetParam(),
            .rank = rank,
            .world_size = 4,
            .run_dir = run_dir::RunDir(folder_),
            .connect_timeout = absl::Seconds(20),
            .timeout = absl::Seconds(20)};
  }

  // Runs `work` on a thread for each of the ranks; returns the statuses in their order.
  using Work = std::function<absl::Status(int rank, const ConnectGroup& connect)>;
  std::vector<absl::Status> Run(const std::vector<int>& ranks, const Work& work) const {
    std::vector<absl::Status> statuses(ranks.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < ranks.size(); ++i) {
      threads.emplace_back(
          [&, i] { statuses[i] = work(ranks[i], HostGroups(OptionsOf(ranks[i]))); });
    }
    for (std::thread& thread : threads) thread.join();
    return statuses;
  }

  testing::TempDir temp_dir_;
  const std::string folder_ = temp_dir_.path();
};

INSTANTIATE_TEST_SUITE_P(Transports, HostGroupsTest,
                         ::testing::Values(HostTransport::kShm, HostTransport::kGloo),
                         [](const auto& of) {
                           return of.param == HostTransport::kShm ? "shm" : "gloo";
                         });

// Sums numbers over the ranks, each one more than its rank.
absl::Status ExpectSum(Communicator& communicator, int rank, float expected) {
  std::vector<float> values(1000, static_cast<float>(rank + 1));
  TY_RETURN_IF_ERROR(communicator.AllReduce(absl::MakeSpan(values)));
  return values == std::vector<float>(1000, expected)
             ? absl::OkStatus()
             : absl::InternalError("the sum is of another group");
}

TEST_P(HostGroupsTest, GroupsOfAGangLiveAtTheSameTime) {
  const auto statuses =
      Run({0, 1, 2, 3}, [](int rank, const ConnectGroup& connect) -> absl::Status {
        TY_ASSIGN_OR_RETURN(const auto whole, connect(kWhole));
        TY_ASSIGN_OR_RETURN(const auto stage, connect(rank < 2 ? kLow : kHigh));
        EXPECT_EQ(whole->rank(), rank);
        EXPECT_EQ(whole->world_size(), 4);
        EXPECT_EQ(stage->rank(), rank % 2);
        EXPECT_EQ(stage->world_size(), 2);
        std::unique_ptr<Communicator> link;
        if (rank % 2 == 1) {
          TY_ASSIGN_OR_RETURN(link, connect(kOdd));
          EXPECT_EQ(link->rank(), rank / 2);
        }
        for (int round = 0; round < 20; ++round) {
          TY_RETURN_IF_ERROR(ExpectSum(*whole, rank, 10));
          TY_RETURN_IF_ERROR(ExpectSum(*stage, rank, rank < 2 ? 3 : 7));
          if (link != nullptr) TY_RETURN_IF_ERROR(ExpectSum(*link, rank, 6));
        }
        return absl::OkStatus();
      });
  EXPECT_THAT(statuses, ::testing::Each(absl::OkStatus()));
}

TEST_P(HostGroupsTest, ALostMemberIsNamedByItsGlobalRank) {
  const auto statuses = Run({1, 3}, [](int rank, const ConnectGroup& connect) -> absl::Status {
    TY_ASSIGN_OR_RETURN(const auto link, connect(kOdd));
    TY_RETURN_IF_ERROR(Meet(*link));
    return rank == 3 ? absl::OkStatus() : Meet(*link);
  });
  EXPECT_TRUE(statuses[1].ok()) << statuses[1];
  EXPECT_THAT(std::string(statuses[0].message()),
              HasSubstr("rank 1: all_gather 2: rank 3 was lost"));
}

TEST_P(HostGroupsTest, AMemberThatDoesNotAppearIsNamedByItsGlobalRank) {
  HostGroupOptions options = OptionsOf(1);
  options.connect_timeout = absl::Milliseconds(100);
  const absl::Status status = HostGroups(options)(kOdd).status();
  EXPECT_THAT(
      std::string(status.message()),
      MatchesRegex("rank 1: connect 0: .*rank 3 did not (appear|take part) within 100ms.*"));
}

TEST_P(HostGroupsTest, ALostMemberIsNamedWithItsHost) {
  if (GetParam() == HostTransport::kShm) GTEST_SKIP() << "all are on one host";
  std::vector<absl::Status> statuses(2);
  std::vector<std::thread> threads;
  for (const int rank : {1, 3}) {
    threads.emplace_back([&, rank] {
      HostGroupOptions options = OptionsOf(rank);
      options.worker = rank == 1 ? "alpha" : "beta";
      const auto link = HostGroups(options)(kOdd);
      statuses[static_cast<size_t>(rank / 2)] =
          !link.ok() || rank == 3 ? link.status() : Meet(**link);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(statuses[1].ok()) << statuses[1];
  EXPECT_THAT(std::string(statuses[0].message()),
              MatchesRegex(".*rank 3 is at .* on worker beta, rank 1 at .* on worker alpha"));
}

TEST_P(HostGroupsTest, KeysHaveTheNameOfTheGroup) {
  const auto statuses = Run({2, 3}, [](int, const ConnectGroup& connect) -> absl::Status {
    return connect(kHigh).status();
  });
  EXPECT_THAT(statuses, ::testing::Each(absl::OkStatus()));
  const auto keys = run_dir::ListRendezvousKeys(run_dir::RunDir(folder_));
  ASSERT_TRUE(keys.ok()) << keys.status();
  EXPECT_THAT(*keys,
              Contains(GetParam() == HostTransport::kShm ? "shm.stage_1.2" : "gloo.stage_1.2"));
}

TEST_P(HostGroupsTest, ARankAloneWaitsForNobody) {
  HostGroupOptions options = OptionsOf(2);
  options.run_dir = run_dir::RunDir("/nonexistent");
  const auto alone = HostGroups(options)({"stage_2", {2}});
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_EQ((*alone)->world_size(), 1);
  EXPECT_TRUE(Meet(**alone).ok());
}

TEST_P(HostGroupsTest, TheWaitCanBeCancelled) {
  const std::atomic<bool> cancelled = true;
  HostGroupOptions options = OptionsOf(3);
  options.cancelled = &cancelled;
  EXPECT_TRUE(absl::IsCancelled(HostGroups(options)(kOdd).status()));
}

}  // namespace
}  // namespace trainyard::parallel
