// Declares layer_norm, embeddings and attention over sequences (graph/ops/layer_norm.cc,
// embedding.cc, attention.cc). Vectors are [count, channels]; the count of a sequence is rows *
// positions. Sums are taken in a fixed order. Element types of one call may differ. Views that are
// written are not parts of a wider value: their padding up to PaddedChannels becomes zero if the
// stride has room for it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "worker/engine/backend/cuda/device/step_control.h"
#include "worker/engine/backend/cuda/device/types.h"

namespace trainyard::engine::cuda {

// mean and inverse are f32 [count].
void LayerNormForward(View x, const float* weight, const float* bias, float eps, View y,
                      float* mean, float* inverse, int64_t count, int64_t channels,
                      cudaStream_t stream);
int64_t LayerNormWorkspace(int64_t count, int64_t channels);
// dx may be null, or the memory of dy or of the addend if both views are alike. The addend, which
// may be null, is added to dx. dweight and dbias are overwritten, or added to.
void LayerNormGradient(View dy, View x, const float* weight, const float* mean,
                       const float* inverse, View addend, View dx, float* dweight, float* dbias,
                       bool adds, int64_t count, int64_t channels, void* workspace,
                       cudaStream_t stream);

// Reads tokens as int32 [count] from the batch's inputs, which are floats [count] at
// control->inputs.
void ReadTokens(const StepControl* control, int32_t* tokens, int64_t count, cudaStream_t stream);
// y is row `token` of the weight, f32 [vocabulary, channels].
void EmbeddingForward(const int32_t* tokens, const float* weight, View y, int64_t count,
                      int64_t channels, cudaStream_t stream);
// Returns the number of kernels and fills of memory that EmbeddingGradient enqueues.
int64_t EmbeddingGradientKernels(int64_t count, int64_t vocabulary);
int64_t EmbeddingGradientWorkspace(int64_t count, int64_t channels);
// dweight is [vocabulary, channels] in f32, and zero for rows without a token unless `adds`. A row
// is summed in parts, which are then added in order: if the tokens are sorted and divided into
// chunks of 32, a part is the sum over the row's positions in one chunk, in their order. count is
// not 0. Returns an error if the tokens cannot be sorted.
cudaError_t EmbeddingGradient(const int32_t* tokens, View dy, float* dweight, bool adds,
                              int64_t count, int64_t vocabulary, int64_t channels, void* workspace,
                              cudaStream_t stream);
// Computes y = x + weight[position]. weight is f32 [positions or more, channels].
void PositionEmbeddingForward(View x, const float* weight, View y, int64_t rows, int64_t positions,
                              int64_t channels, cudaStream_t stream);
// dweight[t] is the sum of dy over the rows. It is zero from `positions` to `table_positions`
// unless `adds`.
void PositionEmbeddingGradient(View dy, float* dweight, bool adds, int64_t rows, int64_t positions,
                               int64_t table_positions, int64_t channels, cudaStream_t stream);

// Causal attention without tensor cores, for shapes that cuDNN's does not take. x is [rows *
// positions, 3 * heads * width], with queries, keys and values of all heads one after the other; y
// is [.., heads * width]; logsum is f32 [rows, heads, positions]. Width is at most 256. All views
// of a call have one type, and padding is left alone.
struct AttentionShape {
  int64_t rows = 0;
  int64_t positions = 0;
  int64_t heads = 1;
  int64_t width = 0;
};
inline constexpr int64_t kAttentionWidthMax = 256;
void AttentionForward(const AttentionShape& shape, View x, View y, float* logsum,
                      cudaStream_t stream);
int64_t AttentionGradientWorkspace(const AttentionShape& shape);
// y is not read. What it contains is computed from x and logsum, into the workspace.
void AttentionGradient(const AttentionShape& shape, View dy, View x, const float* logsum, View dx,
                       void* workspace, cudaStream_t stream);

}  // namespace trainyard::engine::cuda
