// Causal attention with a softmax that is computed on the way (Dao et al. 2022, algorithm 1): each
// tile of keys corrects the result of the tiles before it.
#include <cmath>

#include "worker/engine/backend/cuda/kernels/attention_tile.h"

namespace trainyard::engine::cuda {
namespace {

// Divides what a warp has summed up by its sums of weights, and stores it with their logarithms.
template <class T, int vectors>
__device__ void StoreOutputs(const AttentionOperands& o, const AttentionHead<T>& head,
                             int64_t own_first, const float (&largest)[vectors],
                             const float (&sum)[vectors], OwnColumns<vectors>& y) {
#pragma unroll
  for (int v = 0; v < vectors; ++v) {
    const int64_t t = own_first + v;
    if (t >= o.shape.positions) {
      continue;
    }
#pragma unroll
    for (int column = 0; column < OwnColumns<vectors>::kColumns; ++column) {
      y.at[v][column] /= sum[v];
    }
    y.Store(v, static_cast<int>(o.shape.width), head.At(o.y, 0, t));
    if (threadIdx.x % kWarp == 0) {
      o.logsum[head.Index(t)] = largest[v] + logf(sum[v]);
    }
  }
}

template <class T, int vectors>
__global__ void ForwardKernel(AttentionOperands o, int64_t tiles) {
  TY_DYNAMIC_SHARED(float, shared);
  constexpr int kOwn = kAttentionWarps * vectors;
  const int width = static_cast<int>(o.shape.width);
  float* tile = shared;
  float* queries = shared + kWarp * (width + 1);
  const AttentionHead<T> head(o, blockIdx.x / tiles);
  const int64_t first = blockIdx.x % tiles * kOwn;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  head.Load(o.x, 0, first, kOwn, width, queries);
  const float* own = queries + warp * vectors * width;
  const int64_t own_first = first + warp * vectors;

  float largest[vectors];
  float sum[vectors];
  OwnColumns<vectors> y = {};
#pragma unroll
  for (int v = 0; v < vectors; ++v) {
    largest[v] = -INFINITY;
    sum[v] = 0;
  }
  for (int64_t begin = 0; begin < first + kOwn && begin < o.shape.positions; begin += kWarp) {
    float p[vectors];
    head.Load(o.x, 1, begin, kWarp, width + 1, tile);
    MultiplyTile<vectors>(own, tile, width, p);
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
      // The first tile holds the first key, which all queries see, so the maximum is finite from
      // then on.
      const bool is_seen = begin + lane <= own_first + v;
      const float score = is_seen ? p[v] * o.scale : -INFINITY;
      const float joint = fmaxf(largest[v], WarpMax(score));
      const float correction = expf(largest[v] - joint);
      p[v] = is_seen ? expf(score - joint) : 0;
      sum[v] = sum[v] * correction + WarpSum(p[v]);
      largest[v] = joint;
#pragma unroll
      for (int column = 0; column < OwnColumns<vectors>::kColumns; ++column) {
        y.at[v][column] *= correction;
      }
    }
    head.Load(o.x, 2, begin, kWarp, width + 1, tile);
    y.AddTile(p, tile, width);
  }
  StoreOutputs(o, head, own_first, largest, sum, y);
}

}  // namespace

void AttentionForward(const AttentionShape& shape, View x, View y, float* logsum,
                      cudaStream_t stream) {
  CheckAttention(shape, x, y);
  if (shape.rows * shape.positions == 0) {
    return;
  }
  AttentionOperands operands = {};
  operands.shape = shape;
  operands.x = x;
  operands.y = y;
  operands.logsum = logsum;
  operands.scale = 1 / std::sqrt(static_cast<float>(shape.width));
  WithAttentionKind(x.type, shape.width, [&](auto* type, auto vectors) {
    using T = std::remove_pointer_t<decltype(type)>;
    constexpr int kOwn = kAttentionWarps * decltype(vectors)::value;
    Launch(ForwardKernel<T, decltype(vectors)::value>, dim3(AttentionBlocks(shape, kOwn)),
           dim3(kAttentionThreads), AttentionShared(shape.width, 1), stream, operands,
           (shape.positions + kOwn - 1) / kOwn);
  });
}

}  // namespace trainyard::engine::cuda
