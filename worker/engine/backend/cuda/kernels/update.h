// The optimizer: one multi-tensor update (optim/optimizer.h) that also casts the packed copies,
// folds moving averages and running statistics, clears the sums, and looks for what is not finite.
// Nothing waits for the host: learning rate, step count and loss scale are read from device memory.
//
// Sums over parameters are taken over chunks of fixed elements in a fixed order: they depend on the
// model alone, so all ranks compute the same bits.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "worker/engine/backend/cuda/device/step_control.h"
#include "worker/engine/backend/cuda/kernels/weights.h"
#include "worker/engine/optim/optimizer.h"

namespace trainyard::engine::cuda {

inline constexpr int64_t kUpdateChunk = 4096;

struct UpdateSegment {
  int64_t offset = 0;
  int64_t count = 0;
  // Without decay and layer-wise ratio: a bias or a norm's, unless the spec says otherwise.
  bool is_excluded = false;
  int32_t first_chunk = 0;
  int32_t chunks = 0;
  // Into which packed copy it goes; -1: none. `weight` of UpdateTables::packed.
  int32_t packed = -1;
};
struct UpdateChunk {
  int32_t segment = 0;
  int32_t count = 0;
  int64_t offset = 0;
};
// A running statistic: [offset, offset + count) of the statistics.
struct RunningSegment {
  int64_t offset = 0;
  int64_t count = 0;
  float momentum = 0.1F;
};

// All in device memory.
struct UpdateTables {
  const UpdateSegment* segments = nullptr;
  int64_t segment_count = 0;
  const UpdateChunk* chunks = nullptr;
  int64_t chunk_count = 0;
  const PackedWeight* packed = nullptr;
  const RunningSegment* running = nullptr;
  int64_t running_count = 0;
};

struct UpdateMemory {
  float* parameters = nullptr;
  float* gradients = nullptr;  // [gradient_elements], cleared
  int64_t gradient_elements = 0;
  float* slots = nullptr;       // one after the other, gradient_elements each
  float* step_count = nullptr;  // null where the rule counts none
  float* averages = nullptr;    // null: none
  float* running = nullptr;     // running statistics [statistic_elements]
  float* statistics = nullptr;  // their sums of the step, cleared
  int64_t statistic_elements = 0;
  float* loss = nullptr;  // sums of the step, cleared
  float* correct = nullptr;
  LossScale* loss_scale = nullptr;  // null: 1, and what is not finite is told, but applied
  // Its not_finite is also set where the loss is not.
  StepResult* result = nullptr;
  const StepControl* control = nullptr;
  void* workspace = nullptr;  // UpdateWorkspace bytes, zero before the first update
};

// The workspace is left zero where it must be, from one update to the next. Where the spec counts
// steps and `step_count` is null, they are counted in it.
int64_t UpdateWorkspace(const OptimizerSpec& spec, int64_t segments, int64_t chunks);
// As optim/optimizer.h, in f32 with corrections computed in f64. Where f16's loss scale is kept and
// a gradient is not finite, nothing but the loss scale changes (halved; doubled after
// kLossScaleGrowth good updates) and the sums are cleared. Gradients are divided by the scale.
inline constexpr float kLossScaleStart = 65536;
inline constexpr float kLossScaleGrowth = 2000;
inline constexpr float kLossScaleMax = 16777216;
// Not below it: a model whose gradients are never finite would bring the scale to 0.
inline constexpr float kLossScaleMin = 1 / kLossScaleMax;
// Launches: one for SGD and AdamW, two for LAMB; one more with LARS, clipping or a loss scale.
void Update(const OptimizerSpec& spec, const UpdateTables& tables, const UpdateMemory& memory,
            cudaStream_t stream);
// The same in parts, where no sum over parameters is needed (SGD, AdamW, no clipping, no loss
// scale): any number of disjoint ranges [begin, end) of the flat parameters, which lie in the
// chunks [first_chunk, first_chunk + chunks), then the end: running statistics, metrics, count of
// steps. A launch each.
struct UpdateRangeOf {
  int64_t first_chunk = 0;
  int64_t chunks = 0;
  int64_t begin = 0;
  int64_t end = 0;
};
void UpdatePart(const OptimizerSpec& spec, const UpdateTables& tables, const UpdateMemory& memory,
                const UpdateRangeOf& range, cudaStream_t stream);
void FinishParts(const OptimizerSpec& spec, const UpdateTables& tables, const UpdateMemory& memory,
                 cudaStream_t stream);
// sums += left, with `left` as the left operand; [count] each.
void AddLeft(const float* left, float* sums, int64_t count, cudaStream_t stream);
// Exchanges parameters and moving averages, [count] each.
void Exchange(float* a, float* b, int64_t count, cudaStream_t stream);

}  // namespace trainyard::engine::cuda
