// Implements the optimizer of one executable: its state and tables on the device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/engine/backend/backend.h"
#include "worker/engine/backend/cuda/kernels/update.h"
#include "worker/engine/backend/cuda/owned_slots.h"
#include "worker/engine/backend/cuda/packed_weights.h"
#include "worker/engine/backend/cuda/runtime/runtime.h"
#include "worker/engine/backend/state_table.h"

namespace trainyard::engine::cuda {

struct UpdaterOptions {
  // It keeps a loss scale that follows the gradients.
  bool scales_loss = false;
  // CompileOptions::owned.
  absl::Span<const ElementRange> owned = {};
};

class Updater {
 public:
  static absl::StatusOr<Updater> Create(const OptimizerSpec& spec, const StateTable& table,
                                        const StepGraph& training, const ReductionLayout& layout,
                                        const PackedWeights& weights, const UpdaterOptions& options,
                                        Backing backing);

  // Enqueues an update of `parameters` and the running `statistics` by the sums in `reduction`, and
  // clears the sums.
  void Enqueue(float* parameters, float* statistics, float* reduction, const StepControl* control,
               const StepResults& results, const PackedWeights& weights, cudaStream_t stream) const;
  // Does the same in parts: elements [begin, end) of the parameters, any number of times, then the
  // end. This is allowed only if updates_ranges().
  void EnqueueRange(int64_t begin, int64_t end, float* parameters, float* reduction,
                    const StepControl* control, cudaStream_t stream) const;
  void EnqueueEnd(float* parameters, float* statistics, float* reduction,
                  const StepControl* control, const StepResults& results,
                  const PackedWeights& weights, cudaStream_t stream) const;
  bool updates_ranges() const;
  // Returns what Enqueue launches and moves.
  CallWork Work(const PackedWeights& weights) const;
  // The caller must write the packed weights again afterwards.
  void ExchangeAverages(float* parameters, cudaStream_t stream) const;

  // Slot k of the parts of `owned` begins at element k * owned.stride() of the slots.
  float* slots() const { return slots_.as<float>(); }
  const OwnedSlots& owned() const { return owned_; }
  int64_t slot_count() const { return slot_count_; }
  // Returns null if no steps are counted.
  float* step_count() const {
    return counts_steps_ ? slots() + slot_count_ * owned_.stride() : nullptr;
  }
  float* averages() const { return averages_.as<float>(); }
  // Returns null if the loss is not scaled.
  LossScale* loss_scale() const { return loss_scale_.as<LossScale>(); }
  int64_t state_bytes() const { return slots_.bytes() + averages_.bytes() + loss_scale_.bytes(); }
  int64_t workspace_bytes() const { return tables_memory_.bytes() + workspace_.bytes(); }

 private:
  absl::Status FillTables(const StateTable& table, const StepGraph& training,
                          const ReductionLayout& layout, const PackedWeights& weights,
                          Backing backing);

  UpdateMemory Memory(float* parameters, float* statistics, float* reduction,
                      const StepControl* control, const StepResults& results) const;

  OptimizerSpec spec_;
  ReductionLayout layout_;
  std::vector<int64_t> chunk_offsets_;  // ascending
  OwnedSlots owned_;
  int64_t slot_count_ = 0;
  bool counts_steps_ = false;
  DeviceBuffer slots_, averages_, loss_scale_, tables_memory_, workspace_;
  UpdateTables tables_;
};

}  // namespace trainyard::engine::cuda
