// Contains what the passes of causal attention share. A block of four warps goes over tiles of 32
// positions of one head. A warp owns a few positions (queries, or keys in the pass for their
// gradients), and its lanes hold the positions of the tile. Vectors of the tile lie in shared
// memory.
#pragma once

#include "common/base/check.h"
#include "worker/engine/backend/cuda/kernels/device.h"
#include "worker/engine/backend/cuda/kernels/reduce.h"
#include "worker/engine/backend/cuda/kernels/sequence.h"

namespace trainyard::engine::cuda {

inline constexpr int kAttentionWarps = 4;
inline constexpr int kAttentionThreads = kAttentionWarps * kWarp;
// The columns of all vectors that a warp owns, by lane. That is 8 floats a thread, so that a warp
// owns four vectors of width 64, or one of width 256.
inline constexpr int kOwnColumns = 8;

struct AttentionOperands {
  AttentionShape shape;
  View x, y, dy, dx;  // those that the pass has
  float* logsum;
  float* sums;  // of p dp, [rows, heads, positions]
  float scale;  // 1 / sqrt(width)
};

// Returns four vectors for a width up to 64, two up to 128, and one up to 256.
constexpr int OwnVectors(int64_t width) {
  return width <= 64 ? 4 : width <= 128 ? 2 : 1;
}
// Returns the shared memory of a block: a tile, and `kinds` vectors of each position that the block
// owns.
inline size_t AttentionShared(int64_t width, int kinds) {
  const int64_t own = int64_t{kinds} * kAttentionWarps * OwnVectors(width);
  return static_cast<size_t>(kWarp * (width + 1) + own * width) * sizeof(float);
}

// One head of one row, as graph/ops/attention.cc lays it out.
template <class T>
struct AttentionHead {
  const AttentionOperands& o;
  int64_t row, head;

  __device__ AttentionHead(const AttentionOperands& operands, int64_t index)
      : o(operands), row(index / operands.shape.heads), head(index % operands.shape.heads) {}

  // Returns vector t of one part (0 to 2) of `view`, which holds `parts` next to each other.
  __device__ T* At(const View& view, int64_t part, int64_t t) const {
    return static_cast<T*>(view.data) + (row * o.shape.positions + t) * view.stride +
           (part * o.shape.heads + head) * o.shape.width;
  }
  // Returns the index of position t in logsum and sums.
  __device__ int64_t Index(int64_t t) const {
    return (row * o.shape.heads + head) * o.shape.positions + t;
  }

  // Loads positions [begin, begin + count) of a part into shared memory, as rows of `stride`, with
  // zeros for positions that do not exist. All threads of the block call it; there is a barrier
  // before and after.
  __device__ void Load(const View& view, int64_t part, int64_t begin, int count, int64_t stride,
                       float* shared) const {
    const int width = static_cast<int>(o.shape.width);
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < count * width; i += kAttentionThreads) {
      const int t = i / width;
      const int d = i - t * width;
      shared[t * stride + d] =
          begin + t < o.shape.positions ? ToFloat(At(view, part, begin + t)[d]) : 0;
    }
    __syncthreads();
  }
};

// Columns lane, lane + 32, ... of the vectors that a warp owns.
template <int vectors>
struct OwnColumns {
  static constexpr int kColumns = kOwnColumns / vectors;
  float at[vectors][kColumns];

  // Adds factors[v] times the tile's vectors; lane s holds the factor of position s.
  __device__ void AddTile(const float (&factors)[vectors], const float* tile, int width) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    for (int s = 0; s < kWarp; ++s) {
      float factor[vectors];
#pragma unroll
      for (int v = 0; v < vectors; ++v) {
        factor[v] = __shfl_sync(kFullWarp, factors[v], s);
      }
#pragma unroll
      for (int column = 0; column < kColumns; ++column) {
        const int d = lane + column * kWarp;
        const float value = d < width ? tile[s * (width + 1) + d] : 0;
#pragma unroll
        for (int v = 0; v < vectors; ++v) {
          at[v][column] += factor[v] * value;
        }
      }
    }
  }
  template <class T>
  __device__ void Store(int v, int width, T* to) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
    for (int column = 0; column < kColumns; ++column) {
      const int d = lane + column * kWarp;
      if (d < width) {
        to[d] = FromFloat<T>(at[v][column]);
      }
    }
  }
};

// products[v] is the product of the warp's vector v (in shared memory, rows of `width`) with this
// lane's vector of the tile.
template <int vectors>
__device__ inline void MultiplyTile(const float* own, const float* tile, int width,
                                    float (&products)[vectors]) {
  const float* of_lane = tile + static_cast<int>(threadIdx.x % kWarp) * (width + 1);
#pragma unroll
  for (int v = 0; v < vectors; ++v) {
    products[v] = 0;
  }
  for (int d = 0; d < width; ++d) {
    const float value = of_lane[d];
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
      products[v] += own[v * width + d] * value;
    }
  }
}

// Calls body(type*, std::integral_constant<int, vectors>) with the type and number of vectors that
// a launch is compiled for.
template <class Body>
void WithAttentionKind(Type type, int64_t width, const Body& body) {
  WithType(type, [&](auto* of_type) {
    switch (OwnVectors(width)) {
      case 4:
        body(of_type, std::integral_constant<int, 4>());
        return;
      case 2:
        body(of_type, std::integral_constant<int, 2>());
        return;
      default:
        body(of_type, std::integral_constant<int, 1>());
        return;
    }
  });
}

// Checks that the kernels can do what a call asks for.
inline void CheckAttention(const AttentionShape& shape, const View& a, const View& b) {
  TY_CHECK(shape.width >= 1 && shape.width <= kAttentionWidthMax);
  TY_CHECK(a.type == b.type);
}

// Returns the number of blocks for all heads, with `own` positions each.
inline unsigned AttentionBlocks(const AttentionShape& shape, int own) {
  const int64_t tiles = (shape.positions + own - 1) / own;
  return static_cast<unsigned>(tiles * shape.rows * shape.heads);
}

}  // namespace trainyard::engine::cuda
