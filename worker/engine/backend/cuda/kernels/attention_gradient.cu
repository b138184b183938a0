// The gradient of causal attention. With dp_ts = dy_t v_s:
//   D_t = sum over s of p_ts dp_ts;  dscore_ts = p_ts (dp_ts - D_t)
//   dq_t = sum over s of dscore_ts k_s / sqrt(width), dk_s alike over t;  dv_s = sum of p_ts dy_t
// In the first pass, a thread owns queries and computes D and dq; in the second it owns keys and
// computes dk and dv. So each sum has one owner and a fixed order.
#include <cmath>

#include "worker/engine/backend/cuda/kernels/attention_tile.h"

namespace trainyard::engine::cuda {
namespace {

// The memory of a block, and the positions on which it works.
template <class T, int vectors>
struct Place {
  static constexpr int kOwn = kAttentionWarps * vectors;

  __device__ Place(const AttentionOperands& o, int64_t tiles, float* shared)
      : width(static_cast<int>(o.shape.width)),
        lane(static_cast<int>(threadIdx.x) % kWarp),
        first(blockIdx.x % tiles * kOwn),
        own_first(first + static_cast<int>(threadIdx.x) / kWarp * vectors),
        tile(shared),
        left(shared + kWarp * (width + 1)),
        right(left + kOwn * width),
        own_offset(static_cast<int>(threadIdx.x) / kWarp * vectors * width) {}

  const int width, lane;
  const int64_t first, own_first;  // the first positions that the block and the warp own
  float* const tile;
  float* const left;   // queries or keys that the block owns
  float* const right;  // gradients of y, or values
  const int own_offset;

  __device__ const float* own_left() const { return left + own_offset; }
  __device__ const float* own_right() const { return right + own_offset; }
};

// Computes p and dp for one tile of keys, and leaves the keys in the tile.
template <class T, int vectors>
__device__ void LookAtKeys(const AttentionOperands& o, const AttentionHead<T>& head,
                           const Place<T, vectors>& at, int64_t begin,
                           const float (&logsum)[vectors], float (&p)[vectors],
                           float (&dp)[vectors]) {
  head.Load(o.x, 2, begin, kWarp, at.width + 1, at.tile);
  MultiplyTile<vectors>(at.own_right(), at.tile, at.width, dp);
  head.Load(o.x, 1, begin, kWarp, at.width + 1, at.tile);
  MultiplyTile<vectors>(at.own_left(), at.tile, at.width, p);
#pragma unroll
  for (int v = 0; v < vectors; ++v) {
    const int64_t t = at.own_first + v;
    const bool is_seen = begin + at.lane <= t && t < o.shape.positions;
    p[v] = is_seen ? expf(p[v] * o.scale - logsum[v]) : 0;
  }
}

template <class T, int vectors>
__global__ void QueryKernel(AttentionOperands o, int64_t tiles) {
  TY_DYNAMIC_SHARED(float, shared);
  const Place<T, vectors> at(o, tiles, shared);
  const AttentionHead<T> head(o, blockIdx.x / tiles);
  const int64_t end =
      at.first + at.kOwn < o.shape.positions ? at.first + at.kOwn : o.shape.positions;
  head.Load(o.x, 0, at.first, at.kOwn, at.width, at.left);
  head.Load(o.dy, 0, at.first, at.kOwn, at.width, at.right);
  float logsum[vectors];
#pragma unroll
  for (int v = 0; v < vectors; ++v) {
    const int64_t t = at.own_first + v;
    logsum[v] = t < o.shape.positions ? o.logsum[head.Index(t)] : 0;
  }
  float p[vectors];
  float dp[vectors];
  float sums[vectors] = {};
  for (int64_t begin = 0; begin < end; begin += kWarp) {
    LookAtKeys(o, head, at, begin, logsum, p, dp);
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
      sums[v] += p[v] == 0 ? 0 : p[v] * dp[v];
    }
  }
#pragma unroll
  for (int v = 0; v < vectors; ++v) {
    sums[v] = WarpSum(sums[v]);
  }
  OwnColumns<vectors> dq = {};
  for (int64_t begin = 0; begin < end; begin += kWarp) {
    LookAtKeys(o, head, at, begin, logsum, p, dp);
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
      p[v] = p[v] == 0 ? 0 : p[v] * (dp[v] - sums[v]) * o.scale;
    }
    dq.AddTile(p, at.tile, at.width);
  }
#pragma unroll
  for (int v = 0; v < vectors; ++v) {
    const int64_t t = at.own_first + v;
    if (t < o.shape.positions) {
      dq.Store(v, at.width, head.At(o.dx, 0, t));
      if (at.lane == 0) {
        o.sums[head.Index(t)] = sums[v];
      }
    }
  }
}

template <class T, int vectors>
__global__ void KeyKernel(AttentionOperands o, int64_t tiles) {
  TY_DYNAMIC_SHARED(float, shared);
  const Place<T, vectors> at(o, tiles, shared);
  const AttentionHead<T> head(o, blockIdx.x / tiles);
  head.Load(o.x, 1, at.first, at.kOwn, at.width, at.left);
  head.Load(o.x, 2, at.first, at.kOwn, at.width, at.right);
  OwnColumns<vectors> dk = {};
  OwnColumns<vectors> dv = {};
  for (int64_t begin = at.first / kWarp * kWarp; begin < o.shape.positions; begin += kWarp) {
    float p[vectors];
    float dscore[vectors];
    const int64_t t = begin + at.lane;
    const bool is_there = t < o.shape.positions;
    const float logsum = is_there ? o.logsum[head.Index(t)] : 0;
    const float sum = is_there ? o.sums[head.Index(t)] : 0;
    head.Load(o.x, 0, begin, kWarp, at.width + 1, at.tile);
    MultiplyTile<vectors>(at.own_left(), at.tile, at.width, p);
    head.Load(o.dy, 0, begin, kWarp, at.width + 1, at.tile);
    MultiplyTile<vectors>(at.own_right(), at.tile, at.width, dscore);
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
      const bool is_seen = is_there && at.own_first + v <= t;
      p[v] = is_seen ? expf(p[v] * o.scale - logsum) : 0;
      dscore[v] = is_seen ? p[v] * (dscore[v] - sum) * o.scale : 0;
    }
    dv.AddTile(p, at.tile, at.width);
    head.Load(o.x, 0, begin, kWarp, at.width + 1, at.tile);
    dk.AddTile(dscore, at.tile, at.width);
  }
#pragma unroll
  for (int v = 0; v < vectors; ++v) {
    const int64_t s = at.own_first + v;
    if (s < o.shape.positions) {
      dk.Store(v, at.width, head.At(o.dx, 1, s));
      dv.Store(v, at.width, head.At(o.dx, 2, s));
    }
  }
}

}  // namespace

int64_t AttentionGradientWorkspace(const AttentionShape& shape) {
  return shape.rows * shape.heads * shape.positions * int64_t{sizeof(float)};
}

void AttentionGradient(const AttentionShape& shape, View dy, View x, const float* logsum, View dx,
                       void* workspace, cudaStream_t stream) {
  CheckAttention(shape, x, dy);
  CheckAttention(shape, x, dx);
  if (shape.rows * shape.positions == 0) {
    return;
  }
  AttentionOperands operands = {};
  operands.shape = shape;
  operands.x = x;
  operands.dy = dy;
  operands.dx = dx;
  operands.logsum = const_cast<float*>(logsum);
  operands.sums = static_cast<float*>(workspace);
  operands.scale = 1 / std::sqrt(static_cast<float>(shape.width));
  WithAttentionKind(x.type, shape.width, [&](auto* type, auto vectors) {
    using T = std::remove_pointer_t<decltype(type)>;
    constexpr int kVectors = decltype(vectors)::value;
    constexpr int kOwn = kAttentionWarps * kVectors;
    const dim3 blocks(AttentionBlocks(shape, kOwn));
    const int64_t tiles = (shape.positions + kOwn - 1) / kOwn;
    const size_t shared = AttentionShared(shape.width, 2);
    Launch(QueryKernel<T, kVectors>, blocks, dim3(kAttentionThreads), shared, stream, operands,
           tiles);
    Launch(KeyKernel<T, kVectors>, blocks, dim3(kAttentionThreads), shared, stream, operands,
           tiles);
  });
}

}  // namespace trainyard::engine::cuda
