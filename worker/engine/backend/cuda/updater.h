// Implements the optimizer of one executable: its state and tables on the device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/engine/backend/backend.h"
#include "worker/engine/backend/cuda/kernels/update.h"
#include "worker/engine/backend/cuda/packed_weights.h"
#include "worker/engine/backend/cuda/runtime/runtime.h"
#include "worker/engine/backend/state_table.h"

namespace trainyard::engine::cuda {

class Updater {
 public:
  // With `scales_loss` it keeps a loss scale that follows the gradients.
  static absl::StatusOr<Updater> Create(const OptimizerSpec& spec, const StateTable& table,
                                        const StepGraph& training, const ReductionLayout& layout,
                                        const PackedWeights& weights, bool scales_loss,
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

  float* slots() const { return slots_.as<float>(); }
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
  int64_t step_offset_ = -1;
  DeviceBuffer slots_, averages_, loss_scale_, tables_memory_, workspace_;
  UpdateTables tables_;
};

}  // namespace trainyard::engine::cuda
