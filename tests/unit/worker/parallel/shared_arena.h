// Memory for the tests of exchanges over shared memory.
#pragma once

#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/shared_memory.h"
#include "common/base/status_macros.h"
#include "tests/unit/worker/parallel/exchange_setup.h"
#include "worker/parallel/shared/shared_exchange.h"

namespace trainyard::parallel {

// A rank's reduction, slots and parameters in one file.
struct Arena {
  static absl::StatusOr<std::shared_ptr<Arena>> Make(int64_t elements, int slots,
                                                     int64_t gradient_elements) {
    auto arena = std::make_shared<Arena>();
    const int64_t part = elements * int64_t{sizeof(float)};
    TY_ASSIGN_OR_RETURN(arena->memory, SharedMemory::Create(part * (slots + 2)));
    arena->layout = {.fd = arena->memory->fd(),
                     .base = arena->memory->data(),
                     .bytes = arena->memory->bytes(),
                     .parameters_offset = part * (slots + 1)};
    const auto at = [&](int64_t offset, int64_t count) {
      return absl::MakeSpan(reinterpret_cast<float*>(arena->memory->data() + offset),
                            static_cast<size_t>(count));
    };
    arena->reduction = at(0, elements);
    for (int slot = 1; slot <= slots; ++slot) {
      arena->layout.slot_offsets.push_back(part * slot);
      arena->slots.push_back(at(part * slot, elements));
    }
    arena->parameters = at(arena->layout.parameters_offset, gradient_elements);
    return arena;
  }

  std::unique_ptr<SharedMemory> memory;
  SharedArena layout;
  absl::Span<float> reduction;
  std::vector<absl::Span<float>> slots;
  absl::Span<float> parameters;
};

inline std::vector<int> AllMembers(int size) {
  std::vector<int> members(static_cast<size_t>(size));
  std::iota(members.begin(), members.end(), 0);
  return members;
}

inline SharedExchangeOptions OptionsOf(const ExchangeSetup& setup) {
  return {.buckets = setup.buckets,
          .gradient_elements = setup.gradient_elements,
          .is_sharded = setup.is_sharded,
          .timeout = setup.timeout};
}

// All members but the exchange.
inline RankExchange MadeOf(const std::shared_ptr<Arena>& arena) {
  return {.memory = arena,
          .reduction = arena->reduction,
          .slots = arena->slots,
          .parameters = arena->parameters,
          .exchange = nullptr};
}

}  // namespace trainyard::parallel
