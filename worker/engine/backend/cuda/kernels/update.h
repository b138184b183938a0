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

#include "worker/engine/backend/cuda/kernels/update_tables.h"
#include "worker/engine/optim/optimizer.h"

namespace trainyard::engine::cuda {

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
// Takes one launch, two for LAMB, and one more with LARS, clipping or a loss scale.
void Update(const OptimizerSpec& spec, const UpdateTables& tables, const UpdateMemory& memory,
            cudaStream_t stream);
// Returns how many kernels Update launches.
int64_t UpdateKernels(const OptimizerSpec& spec, bool scales_loss);
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
// Convert `count` values to bfloat16, rounded to the nearest, and back.
void ToBf16(const float* from, void* to, int64_t count, cudaStream_t stream);
void FromBf16(const void* from, float* to, int64_t count, cudaStream_t stream);
// Swaps parameters and moving averages, [count] each.
void Exchange(float* a, float* b, int64_t count, cudaStream_t stream);

}  // namespace trainyard::engine::cuda
