// Contains what kernels share: sums and maxima over a warp and a block, the tickets by which the
// last block of a launch is recognised, division by what is constant in a launch, and the number of
// blocks that fill the device. Everything is computed in a fixed order, so the bits are the same
// each time.
#pragma once

#include <algorithm>
#include <cstdint>

#include "worker/engine/backend/cuda/kernels/device.h"

namespace trainyard::engine::cuda {

inline constexpr int kWarp = 32;
inline constexpr unsigned kFullWarp = 0xffffffffU;

// Returns the sum over the lanes of a warp, in all of them. The whole warp must call it.
template <class T>
__device__ inline T WarpSum(T value) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(kFullWarp, value, offset);
  }
  return value;
}

// Returns the largest value over the lanes of a warp, in all of them. A NaN is ignored. The whole
// warp must call it.
__device__ inline float WarpMax(float value) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kFullWarp, value, offset));
  }
  return value;
}

// Returns the sum over the threads of a block, in all of them. blockDim is (threads), a multiple of
// kWarp; the whole block must call it. shared is [kWarp], and may be reused when it returns.
template <class T>
__device__ inline T BlockSum(T value, T* shared) {
  const unsigned lane = threadIdx.x % kWarp;
  const unsigned warps = blockDim.x / kWarp;
  value = WarpSum(value);
  if (lane == 0) {
    shared[threadIdx.x / kWarp] = value;
  }
  __syncthreads();
  value = WarpSum(lane < warps ? shared[lane] : T{0});
  __syncthreads();
  return value;
}

// Returns true in all threads of a block if it is the last of `blocks` blocks that came here with
// this ticket. The last block sees what the others wrote to global memory before they came. The
// ticket is zero before the first use, and zero again after the last block.
__device__ inline bool IsLastBlock(uint32_t* ticket, uint32_t blocks) {
  __shared__ uint32_t arrived;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    arrived = atomicAdd(ticket, 1U);
    if (arrived == blocks - 1) {
      *ticket = 0;
    }
  }
  __syncthreads();
  const bool is_last = arrived == blocks - 1;
  __syncthreads();
  if (is_last) {
    __threadfence();
  }
  return is_last;
}

// Computes n / divisor and n % divisor for n below 2^31, by a multiplication: a division of
// variables costs a GPU some 20 instructions (Granlund & Montgomery 1994, "Division by invariant
// integers using multiplication", figure 4.1).
class Divider {
 public:
  Divider() = default;
  explicit Divider(int64_t divisor) : divisor_(static_cast<uint32_t>(divisor)) {
    while ((uint64_t{1} << shift_) < divisor_) {
      ++shift_;
    }
    multiplier_ = static_cast<uint32_t>(
        ((uint64_t{1} << 32) * ((uint64_t{1} << shift_) - divisor_)) / divisor_ + 1);
  }

  __device__ uint32_t Quotient(uint32_t n) const {
    const uint32_t high = static_cast<uint32_t>((uint64_t{multiplier_} * n) >> 32);
    return (high + n) >> shift_;
  }
  // Divides n, which becomes the quotient, and returns the remainder.
  __device__ uint32_t Split(uint32_t& n) const {
    const uint32_t quotient = Quotient(n);
    const uint32_t remainder = n - quotient * divisor_;
    n = quotient;
    return remainder;
  }

 private:
  uint32_t divisor_ = 1;
  uint32_t multiplier_ = 1;
  uint32_t shift_ = 0;
};

// Returns the number of multiprocessors of the current device. It asks only once, since all devices
// of a process are of one kind.
inline int64_t Multiprocessors() {
  static const int64_t count = [] {
    int device = 0;
    int value = 0;
    const bool is_known =
        cudaGetDevice(&device) == cudaSuccess &&
        cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, device) == cudaSuccess;
    return static_cast<int64_t>(is_known && value > 0 ? value : 1);
  }();
  return count;
}

// Returns the number of blocks for `items`, of which each block handles `per_block` at a time.
// There are no more than run at once, for kernels whose loops stride over the grid, and at least 1.
inline unsigned GridBlocks(int64_t items, int64_t per_block, int64_t per_multiprocessor) {
  const int64_t needed = (items + per_block - 1) / per_block;
  return static_cast<unsigned>(
      std::clamp<int64_t>(needed, 1, Multiprocessors() * per_multiprocessor));
}

}  // namespace trainyard::engine::cuda
