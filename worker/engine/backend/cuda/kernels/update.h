// Declares the optimizer: one multi-tensor update (optim/optimizer.h) that also casts the packed
// copies, folds moving averages and running statistics, clears the sums, and looks for values that
// are not finite. Nothing waits for the host: learning rate, step count and loss scale are read
// from device memory.
//
// Sums over parameters are taken over chunks of fixed elements in a fixed order. They depend only
// on the model, so all ranks compute the same bits.
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
  // True if the parameter has no decay and no layer-wise ratio, as a bias or a norm's parameter,
  // unless the spec says otherwise.
  bool is_excluded = false;
  int32_t first_chunk = 0;
  int32_t chunks = 0;
  // The packed copy to which it is written, as an index into UpdateTables::packed, or -1 if there
  // is none.
  int32_t packed = -1;
};
struct UpdateChunk {
  int32_t segment = 0;
  int32_t count = 0;
  int64_t offset = 0;
};
// A running statistic: elements [offset, offset + count) of the statistics.
struct RunningSegment {
  int64_t offset = 0;
  int64_t count = 0;
  float momentum = 0.1F;
};

// The tables of an update, which all lie in device memory.
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
  float* gradients = nullptr;  // [gradient_elements]; they are cleared
  int64_t gradient_elements = 0;
  float* slots = nullptr;       // one after the other, gradient_elements each
  float* step_count = nullptr;  // null if the rule counts none
  float* averages = nullptr;    // null if there are none
  float* running = nullptr;     // running statistics [statistic_elements]
  float* statistics = nullptr;  // their sums of the step, which are cleared
  int64_t statistic_elements = 0;
  float* loss = nullptr;  // sums of the step, which are cleared
  float* correct = nullptr;
  // If null, the scale is 1, and values that are not finite are reported but applied.
  LossScale* loss_scale = nullptr;
  // Its not_finite is also set if the loss is not finite.
  StepResult* result = nullptr;
  const StepControl* control = nullptr;
  void* workspace = nullptr;  // UpdateWorkspace bytes, zero before the first update
};

// Returns the bytes of the workspace. An update leaves it ready for the next one. If the spec
// counts steps and `step_count` is null, they are counted in it.
int64_t UpdateWorkspace(const OptimizerSpec& spec, int64_t segments, int64_t chunks);
// Updates like optim/optimizer.h, in f32 with corrections computed in f64. Gradients are divided by
// the loss scale. If there is a loss scale and a gradient is not finite, the sums are cleared and
// only the loss scale changes: it is halved. It is doubled after kLossScaleGrowth good updates.
inline constexpr float kLossScaleStart = 65536;
inline constexpr float kLossScaleGrowth = 2000;
inline constexpr float kLossScaleMax = 16777216;
// The lower limit. A model whose gradients are never finite would otherwise bring the scale to 0.
inline constexpr float kLossScaleMin = 1 / kLossScaleMax;
// Takes one launch for SGD and AdamW, two for LAMB, and one more with LARS, clipping or a loss
// scale.
void Update(const OptimizerSpec& spec, const UpdateTables& tables, const UpdateMemory& memory,
            cudaStream_t stream);
// Updates in parts, if no sum over parameters is needed (SGD, AdamW, no clipping, no loss scale):
// any number of disjoint ranges [begin, end) of the flat parameters, which lie in the chunks
// [first_chunk, first_chunk + chunks), then the end, with running statistics, metrics and the count
// of steps. Each call is one launch.
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
// Computes sums = left + sums, in this order of operands; both are [count].
void AddLeft(const float* left, float* sums, int64_t count, cudaStream_t stream);
// Swaps parameters and moving averages, [count] each.
void Exchange(float* a, float* b, int64_t count, cudaStream_t stream);

}  // namespace trainyard::engine::cuda
