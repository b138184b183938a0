// Holds the memory through which ranks exchange data: the reduction, the partial sums and the
// parameters. It is one block, which may be a file that the ranks of a host map.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "worker/engine/backend/backend.h"
#include "worker/engine/graph/memory_plan.h"
#include "worker/engine/graph/step_graph.h"

namespace trainyard::engine::cpu {

class ExchangedMemory {
 public:
  ExchangedMemory(const ReductionLayout& layout, const CompileOptions& options, Backing backing);

  float* reduction() const { return At(0); }
  int sum_slots() const { return sum_slots_; }
  float* slot(int slot) const { return At(part_bytes_ * (slot + 1)); }
  float* parameters() const { return At(parameters_offset()); }

  // Return the bytes of the reduction and the slots, and those of the parameters. Together they are
  // all that is held.
  int64_t gradient_bytes() const { return parameters_offset(); }
  int64_t parameter_bytes() const { return memory_.bytes() - parameters_offset(); }

  Executable::SharedLayout shared_layout() const;

 private:
  float* At(int64_t offset) const { return reinterpret_cast<float*>(memory_.data() + offset); }
  int64_t parameters_offset() const { return part_bytes_ * (sum_slots_ + 1); }

  const int sum_slots_;
  const int64_t part_bytes_;  // of the reduction, and of each slot
  const AlignedBuffer memory_;
};

}  // namespace trainyard::engine::cpu
