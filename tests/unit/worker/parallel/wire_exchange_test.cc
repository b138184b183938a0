// What exchanges promise, of the one over communicators of host memory.
#include "worker/parallel/wire_exchange.h"

#include <utility>

#include "common/base/status_macros.h"
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

}  // namespace
}  // namespace trainyard::parallel
