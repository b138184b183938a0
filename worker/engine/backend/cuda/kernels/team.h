// Sums over the threads of a warp or a block, in an order that depends on their number alone, and
// the block that comes last.
#pragma once

#include "worker/engine/backend/cuda/kernels/device.h"

namespace trainyard::engine::cuda {

inline constexpr int kWarpThreads = 32;
inline constexpr unsigned kAllLanes = 0xffffffffU;

// The same bits in all lanes: each step adds the same two numbers on both sides.
template <class T>
__device__ inline T SumOfWarp(T value) {
  for (int distance = kWarpThreads / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, distance);
  }
  return value;
}
__device__ inline float MaxOfWarp(float value) {
  for (int distance = kWarpThreads / 2; distance > 0; distance /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, distance));
  }
  return value;
}

// Of a team: one warp, or the whole block of `threads`; all its threads get the sum. `scratch` is
// shared memory of threads / 32 elements (not used by a warp), free again afterwards.
template <int threads, class T>
__device__ inline T SumOfTeam(T value, T* scratch) {
  value = SumOfWarp(value);
  if constexpr (threads == kWarpThreads) {
    return value;
  } else {
    constexpr int kWarps = threads / kWarpThreads;
    const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
    if (threadIdx.x % kWarpThreads == 0) {
      scratch[warp] = value;
    }
    __syncthreads();
    T sum = scratch[0];
    for (int i = 1; i < kWarps; ++i) {
      sum += scratch[i];
    }
    __syncthreads();
    return sum;
  }
}

// Whether this block is the last of all `blocks` of a launch to come here: then it sees what the
// others wrote before. All its threads call it, once a launch. `ticket` is zero before and after
// the launch; `is_last` is shared memory.
__device__ inline bool IsLastBlock(uint32_t* ticket, uint32_t blocks, bool* is_last) {
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    *is_last = atomicAdd(ticket, 1U) + 1 == blocks;
    if (*is_last) {
      *ticket = 0;
    }
  }
  __syncthreads();
  __threadfence();
  return *is_last;
}

}  // namespace trainyard::engine::cuda
