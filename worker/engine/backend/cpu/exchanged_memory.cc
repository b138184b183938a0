#include "worker/engine/backend/cpu/exchanged_memory.h"

namespace trainyard::engine::cpu {
namespace {

constexpr int64_t kElementBytes = sizeof(float);

}  // namespace

ExchangedMemory::ExchangedMemory(const ReductionLayout& layout, int sum_slots, Backing backing)
    : sum_slots_(sum_slots),
      part_bytes_(AlignUp(layout.size * kElementBytes)),
      memory_(part_bytes_ * (sum_slots + 1) + layout.gradient_elements * kElementBytes, backing) {}

}  // namespace trainyard::engine::cpu
