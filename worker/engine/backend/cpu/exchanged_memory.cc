// Lays out the memory that ranks exchange, in a file of its own if other processes need to map it.
#include "worker/engine/backend/cpu/exchanged_memory.h"

namespace trainyard::engine::cpu {
namespace {

constexpr int64_t kElementBytes = sizeof(float);
// Each part that others map begins at a page of its own.
constexpr int64_t kPageBytes = 4096;

int64_t PartBytes(int64_t elements, bool is_shared) {
  const int64_t alignment = is_shared ? kPageBytes : kArenaAlignment;
  return (elements * kElementBytes + alignment - 1) / alignment * alignment;
}

Backing BackingOf(Backing backing, bool is_shared) {
  return is_shared && backing == Backing::kMemory ? Backing::kFile : backing;
}

}  // namespace

ExchangedMemory::ExchangedMemory(const ReductionLayout& layout, const CompileOptions& options,
                                 Backing backing)
    : sum_slots_(options.sum_slots),
      part_bytes_(PartBytes(layout.size, options.shares_memory)),
      memory_(part_bytes_ * (sum_slots_ + 1) +
                  PartBytes(layout.gradient_elements, options.shares_memory),
              BackingOf(backing, options.shares_memory)) {}

Executable::SharedLayout ExchangedMemory::shared_layout() const {
  Executable::SharedLayout layout;
  if (memory_.fd() < 0) return layout;
  layout.fd = memory_.fd();
  for (int slot = 0; slot < sum_slots_; ++slot) {
    layout.slot_offsets.push_back(part_bytes_ * (slot + 1));
  }
  layout.parameters_offset = parameters_offset();
  layout.bytes = memory_.bytes();
  return layout;
}

}  // namespace trainyard::engine::cpu
