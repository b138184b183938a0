#include "worker/trainer/device_exchange.h"

#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/parallel/local/local_communicator.h"

namespace trainyard::trainer {
namespace {

using ::testing::HasSubstr;

// Where arenas lie on devices, each gang of communicators sums its own.
TEST(DeviceExchange, SumsTheArenaByItsOwnCommunicatorAndGathersBallotsByTheHosts) {
  const auto hosts = parallel::MakeLocalGroup(2), devices = parallel::MakeLocalGroup(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const auto host = parallel::MakeLocalCommunicator(hosts, rank);
      const auto device = parallel::MakeLocalCommunicator(devices, rank);
      std::vector<float> arena(3, static_cast<float>(rank + 1));
      int synchronized = 0;
      const auto exchange = MakeDeviceExchange({.arena = absl::MakeSpan(arena),
                                                .arena_communicator = device.get(),
                                                .host = host.get(),
                                                .synchronize = [&synchronized] {
                                                  ++synchronized;
                                                  return absl::OkStatus();
                                                }});
      for (int64_t step = 1; step <= 2; ++step) {
        const std::vector<double> ballot = {1.0 / 3 + rank, 1e-300};
        std::vector<double> ballots(4);
        EXPECT_TRUE(exchange->Begin(step, ballot).ok());
        EXPECT_TRUE(exchange->Ready(3).ok());
        EXPECT_TRUE(exchange->Land(0).ok());
        EXPECT_TRUE(exchange->Finish(absl::MakeSpan(ballots)).ok());
        EXPECT_EQ(ballots, (std::vector<double>{1.0 / 3, 1e-300, 1.0 / 3 + 1, 1e-300}));
        EXPECT_EQ(arena, std::vector<float>(3, step == 1 ? 3 : 6));
        EXPECT_EQ(synchronized, step);
        EXPECT_EQ(exchange->stats().exposed, exchange->stats().total);
        EXPECT_GT(exchange->stats().bytes_sent, 0);
      }
      // Both still go in step with their peers.
      EXPECT_TRUE(device->Barrier().ok());
      EXPECT_TRUE(host->Barrier().ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(DeviceExchange, ALostPeerIsNamedWithTheStep) {
  const auto group = parallel::MakeLocalGroup(2);
  const auto mine = parallel::MakeLocalCommunicator(group, 0);
  parallel::MakeLocalCommunicator(group, 1).reset();
  std::vector<float> arena(3);
  const auto exchange = MakeDeviceExchange({.arena = absl::MakeSpan(arena),
                                            .arena_communicator = mine.get(),
                                            .host = mine.get(),
                                            .synchronize = [] { return absl::OkStatus(); }});
  ASSERT_TRUE(exchange->Begin(12, {}).ok());
  ASSERT_TRUE(exchange->Ready(3).ok());
  const absl::Status status = exchange->Land(0);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("step 12: rank 0: all_reduce 1: rank 1"));
}

TEST(DeviceExchange, RefusesSeveralTermsOfARank) {
  const auto alone = parallel::MakeLocalCommunicator(parallel::MakeLocalGroup(1), 0);
  const auto exchange = MakeDeviceExchange(
      {.arena = {}, .arena_communicator = alone.get(), .host = alone.get(), .synchronize = {}});
  EXPECT_TRUE(exchange->SetPlan({.terms = {1, 1}, .sum = {}}, {}).ok());
  EXPECT_EQ(exchange->SetPlan({.terms = {1, 2}, .sum = {}}, {}).code(),
            absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace trainyard::trainer
