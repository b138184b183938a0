#include "worker/trainer/votes.h"

#include <thread>

#include "gtest/gtest.h"
#include "worker/parallel/local/local_communicator.h"

namespace trainyard::trainer {
namespace {

struct RankOutcome {
  std::vector<float> arena;
  Votes votes;
  absl::Status status;
};

std::vector<RankOutcome> Reduce(size_t elements, const std::vector<Votes>& votes) {
  const int ranks = static_cast<int>(votes.size());
  const auto group = parallel::MakeLocalGroup(ranks);
  std::vector<RankOutcome> outcomes(votes.size());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      RankOutcome& outcome = outcomes[static_cast<size_t>(rank)];
      outcome.arena.assign(elements, static_cast<float>(rank + 1));
      outcome.votes = votes[static_cast<size_t>(rank)];
      const auto communicator = parallel::MakeLocalCommunicator(group, rank);
      StepReduction reduction(*communicator);
      outcome.status = reduction.AllReduce(absl::MakeSpan(outcome.arena), outcome.votes);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

TEST(Votes, OneRankThatWantsToStopStopsAllAtTheSameStep) {
  // Below and above the size up to which votes and gradients share a message.
  for (const size_t elements : {size_t{10}, (size_t{1} << 20) + 1}) {
    const auto outcomes = Reduce(elements, {{}, {.stop = true}, {.checkpoint = true}});
    for (const RankOutcome& outcome : outcomes) {
      ASSERT_TRUE(outcome.status.ok()) << outcome.status;
      EXPECT_EQ(outcome.votes, (Votes{.stop = true, .checkpoint = true, .evaluate = false}));
      EXPECT_EQ(outcome.arena.front(), 6);
      EXPECT_EQ(outcome.arena.back(), 6);
    }
  }
}

// Where arenas lie on devices, each gang of communicators sums its own.
TEST(Votes, AnArenaOfADeviceIsSummedByTheDevicesCommunicator) {
  const auto hosts = parallel::MakeLocalGroup(2), devices = parallel::MakeLocalGroup(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const auto host = parallel::MakeLocalCommunicator(hosts, rank);
      const auto device = parallel::MakeLocalCommunicator(devices, rank);
      std::vector<float> arena(3, 1);
      Votes votes{.stop = rank == 1};
      StepReduction reduction(*host, device.get());
      EXPECT_TRUE(reduction.AllReduce(absl::MakeSpan(arena), votes).ok());
      EXPECT_EQ(arena, std::vector<float>(3, 2));
      EXPECT_EQ(votes, Votes{.stop = true});
      // Both still go in step with their peers.
      EXPECT_TRUE(device->Barrier().ok());
      EXPECT_TRUE(host->Barrier().ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Votes, SkippedSamplesAreCountedOverAllRanks) {
  const auto outcomes = Reduce(3, {{.skipped = 2}, {}, {.skipped = 5}});
  for (const RankOutcome& outcome : outcomes) EXPECT_EQ(outcome.votes, Votes{.skipped = 7});
}

TEST(Votes, WithoutVotesNothingIsDecided) {
  for (const RankOutcome& outcome : Reduce(3, {{}, {}})) EXPECT_EQ(outcome.votes, Votes{});
}

TEST(Votes, ASingleRankDecidesAlone) {
  const auto outcomes = Reduce(3, {{.evaluate = true}});
  EXPECT_EQ(outcomes[0].votes, Votes{.evaluate = true});
  EXPECT_EQ(outcomes[0].arena, std::vector<float>(3, 1));
}

}  // namespace
}  // namespace trainyard::trainer
