// Runs the cases of exchanges over communicators of host memory.
#include "worker/parallel/wire_exchange.h"

#include <string>
#include <thread>
#include <utility>

#include "common/base/status_macros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/worker/parallel/exchange_cases.h"

namespace trainyard::parallel {
namespace {

// A rank's memory.
struct Memory {
  std::vector<float> reduction;
  std::vector<std::vector<float>> slots;
  std::vector<float> parameters;
};

ExchangeKind WireOver(const Transport& transport) {
  const auto make = [transport](const ExchangeSetup& setup) -> absl::StatusOr<RankExchange> {
    const auto elements = static_cast<size_t>(setup.elements);
    const auto memory = std::make_shared<Memory>();
    memory->reduction.resize(elements);
    memory->slots.assign(static_cast<size_t>(setup.slots), std::vector<float>(elements));
    memory->parameters.resize(static_cast<size_t>(setup.gradient_elements));
    RankExchange made;
    made.memory = memory;
    made.reduction = absl::MakeSpan(memory->reduction);
    for (std::vector<float>& slot : memory->slots) made.slots.push_back(absl::MakeSpan(slot));
    made.parameters = absl::MakeSpan(memory->parameters);
    TY_ASSIGN_OR_RETURN(auto communicator, transport.connect(setup.place));
    communicator->set_timeout(setup.timeout);
    made.exchange =
        MakeWireExchange(std::move(communicator), {.buckets = setup.buckets,
                                                   .gradient_elements = setup.gradient_elements,
                                                   .is_sharded = setup.is_sharded,
                                                   .reduction = made.reduction,
                                                   .slots = made.slots,
                                                   .parameters = made.parameters,
                                                   .plan = setup.plan,
                                                   .term_slots = setup.term_slots});
    return made;
  };
  return {"wire_" + transport.name, make};
}

INSTANTIATE_TEST_SUITE_P(Wire, ExchangeTest,
                         ::testing::Combine(::testing::Values(WireOver(LocalTransport()),
                                                              WireOver(GlooTransport()),
                                                              WireOver(ShmTransport())),
                                            ::testing::Values(1, 2, 3, 4), ::testing::Bool()),
                         NameOfExchange);
INSTANTIATE_TEST_SUITE_P(Wire, ExchangeFaultTest,
                         ::testing::Values(WireOver(LocalTransport()), WireOver(GlooTransport()),
                                           WireOver(ShmTransport())),
                         NameOfExchangeKind);

// Two ranks with two buckets, which meet while backward is still at the second one.
TEST(WireExchange, ABucketLandsWhileBackwardComputesTheNext) {
  const auto group = MakeLocalGroup(2);
  const auto run_rank = [&group](int rank) {
    std::vector<float> reduction(10, static_cast<float>(rank + 1));
    const auto exchange = MakeWireExchange(MakeLocalCommunicator(group, rank),
                                           {.buckets = {{0, 4}, {4, 10}},
                                            .gradient_elements = 10,
                                            .reduction = absl::MakeSpan(reduction),
                                            .plan = {{1, 1}, PlanRankSum(2)},
                                            .term_slots = {-1}});
    EXPECT_TRUE(exchange->Begin(1, {}).ok());
    EXPECT_TRUE(exchange->Ready(4).ok());
    EXPECT_TRUE(exchange->Land(0).ok());
    // Nothing of the second bucket has moved yet.
    const float own = static_cast<float>(rank + 1);
    EXPECT_EQ(reduction, std::vector<float>({3, 3, 3, 3, own, own, own, own, own, own}));
    EXPECT_TRUE(exchange->Ready(10).ok());
    EXPECT_TRUE(exchange->Land(1).ok());
    EXPECT_EQ(reduction, std::vector<float>(10, 3));
    // A bucket that is known to be ready may be announced again.
    EXPECT_TRUE(exchange->Ready(10).ok());
    EXPECT_TRUE(exchange->End().ok());
    EXPECT_TRUE(exchange->Finish({}).ok());
  };
  std::thread other([&] { run_rank(1); });
  run_rank(0);
  other.join();
}

// Errors of a group name the gang's ranks.
TEST(WireExchange, RanksThatDisagreeAreNamedAsInTheGang) {
  const auto group = MakeLocalGroup(2);
  absl::Status statuses[2];
  const auto run_rank = [&](int rank) {
    std::vector<float> reduction(10);
    const auto exchange = MakeWireExchange(MakeLocalCommunicator(group, rank),
                                           {.buckets = {{0, 4 + rank}, {4 + rank, 10}},
                                            .gradient_elements = 10,
                                            .reduction = absl::MakeSpan(reduction),
                                            .plan = {{1, 1}, PlanRankSum(2)},
                                            .term_slots = {-1},
                                            .members = {2, 5}});
    EXPECT_TRUE(exchange->Begin(7, {}).ok());
    statuses[rank] = exchange->Land(0);
  };
  std::thread other([&] { run_rank(1); });
  run_rank(0);
  other.join();
  EXPECT_THAT(std::string(statuses[0].message()),
              ::testing::StartsWith("step 7: rank 2: agreement 1: rank 5 has other buckets"));
  EXPECT_THAT(std::string(statuses[1].message()),
              ::testing::StartsWith("step 7: rank 5: agreement 1: rank 2 has other buckets"));
}

}  // namespace
}  // namespace trainyard::parallel
