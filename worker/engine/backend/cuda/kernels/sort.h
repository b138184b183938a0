// Sorts pairs of numbers in device memory with the radix sort of CUB, which is a part of the CUDA
// toolkit. The sort is stable: pairs with equal keys keep their order.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace trainyard::engine::cuda {

// Returns the number of bits that keys from 0 to keys - 1 have.
constexpr int SortBits(int64_t keys) {
  int bits = 1;
  while (bits < 31 && (int64_t{1} << bits) < keys) {
    ++bits;
  }
  return bits;
}

// Returns the bytes of workspace that SortPairs takes. CUB says what it needs only where there is a
// device, but the memory of a step is also planned without one. So this is a bound: a copy of the
// keys and values between two passes, 1 KiB of counters for every tile, which has more than 1,024
// pairs, and a rest that does not depend on the pairs.
constexpr int64_t SortWorkspace(int64_t pairs) {
  constexpr int64_t kRest = 16 * 1024;
  return pairs * (2 * int64_t{sizeof(int32_t)} + 1) + kRest;
}

// Returns the number of kernels and fills of memory that SortPairs enqueues, as CUB 3.0 has them in
// cub/device/dispatch/dispatch_radix_sort.cuh. A single block sorts what fits into it. Otherwise
// two sets of counters are cleared, the digits are counted, and their places computed; then, for
// each digit of 8 bits, the counters of the tiles are cleared and the pairs are moved.
constexpr int64_t SortLaunches(int64_t pairs, int bits) {
  constexpr int64_t kPairsOfBlock = 256 * 19;
  constexpr int kDigitBits = 8;
  if (pairs <= kPairsOfBlock) {
    return pairs > 0 ? 1 : 0;
  }
  return 4 + 2 * int64_t{(bits + kDigitBits - 1) / kDigitBits};
}

// Sorts `pairs` pairs, fewer than 2^28, by the lowest `bits` bits of their keys. No array may
// overlap another one. `workspace` has SortWorkspace bytes. Returns an error if CUB needs more than
// these, or cannot launch its kernels.
cudaError_t SortPairs(const int32_t* keys, const int32_t* values, int64_t pairs, int bits,
                      int32_t* sorted_keys, int32_t* sorted_values, void* workspace,
                      cudaStream_t stream);

}  // namespace trainyard::engine::cuda
