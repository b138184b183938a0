// The exchange over shared memory where all ranks see it at the same addresses, so that a detector
// of races sees what they do to each other's memory.
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "gtest/gtest.h"
#include "tests/unit/worker/parallel/exchange_cases.h"
#include "tests/unit/worker/parallel/shared_arena.h"
#include "worker/parallel/shared/shared_exchange.h"

namespace trainyard::parallel {
namespace {

// Shared by the threads of one gang, which see everything at the same addresses.
struct Commons {
  Mutex mutex;
  CondVar arrived;
  std::vector<RankBoard> boards = std::vector<RankBoard>(4);
  std::map<int, std::shared_ptr<Arena>> arenas;  // by rank
};

std::shared_ptr<Commons> CommonsOf(const LocalGroup* group) {
  static Mutex mutex;
  static std::map<const LocalGroup*, std::weak_ptr<Commons>> all;
  const MutexLock lock(&mutex);
  std::shared_ptr<Commons> commons = all[group].lock();
  if (commons == nullptr) all[group] = commons = std::make_shared<Commons>();
  return commons;
}

// The arenas of all ranks, once all ranks have brought theirs.
std::vector<std::shared_ptr<Arena>> Meet(Commons& commons, int rank, int ranks,
                                         const std::shared_ptr<Arena>& mine) {
  const MutexLock lock(&commons.mutex);
  commons.arenas[rank] = mine;
  commons.arrived.SignalAll();
  while (commons.arenas.size() < static_cast<size_t>(ranks)) commons.arrived.Wait(&commons.mutex);
  std::vector<std::shared_ptr<Arena>> all;
  for (const auto& [of, arena] : commons.arenas) all.push_back(arena);
  return all;
}

ExchangeKind AtTheSameAddresses() {
  const auto make = [](const ExchangeSetup& setup) -> absl::StatusOr<RankExchange> {
    // A rank that lives longer than its peer still sees the peer's memory.
    struct Kept {
      std::shared_ptr<Commons> commons;
      std::vector<std::shared_ptr<Arena>> arenas;
    };
    const auto kept = std::make_shared<Kept>();
    const int ranks = setup.place.world_size;
    TY_ASSIGN_OR_RETURN(const auto mine,
                        Arena::Make(setup.elements, setup.slots, setup.gradient_elements));
    kept->commons = CommonsOf(setup.place.group.get());
    kept->arenas = Meet(*kept->commons, setup.place.rank, ranks, mine);
    SharedGang gang = {.rank = setup.place.rank, .members = AllMembers(ranks)};
    for (size_t rank = 0; rank < kept->arenas.size(); ++rank) {
      const Arena& of = *kept->arenas[rank];
      RankMemory memory = {
          .reduction = of.reduction.data(), .slots = {}, .parameters = of.parameters.data()};
      for (const absl::Span<float> slot : of.slots) memory.slots.push_back(slot.data());
      gang.memory.push_back(std::move(memory));
      gang.boards.push_back(&kept->commons->boards[rank]);
      gang.lives.emplace_back();
    }
    RankExchange made = MadeOf(mine);
    made.memory = kept;
    made.exchange = MakeSharedExchange(std::move(gang), OptionsOf(setup));
    TY_RETURN_IF_ERROR(made.exchange->SetPlan(setup.plan, setup.term_slots));
    return made;
  };
  return {"shared_threads", make};
}

INSTANTIATE_TEST_SUITE_P(SharedThreads, ExchangeTest,
                         ::testing::Combine(::testing::Values(AtTheSameAddresses()),
                                            ::testing::Values(1, 2, 3, 4), ::testing::Bool()),
                         NameOfExchange);

}  // namespace

// These cases wait in ways that the detector does not know.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ExchangeFaultTest);

}  // namespace trainyard::parallel
