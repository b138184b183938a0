// Takes the place of CUB's header of this name where the C++ compiler compiles kernels, since CUB's
// own kernels need nvcc. It has the calls that the backend makes.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace cub {

struct DeviceRadixSort {
  // Sorts pairs by bits [begin_bit, end_bit) of their keys, which are not negative. If `temporary`
  // is null, it only sets `temporary_bytes` to what the sort needs. Ends the process if one of the
  // arrays is not device memory, leaves its allocation, or overlaps another one. As with CUB, the
  // runtime does not keep the error for a `temporary` that is too small.
  static cudaError_t SortPairs(void* temporary, size_t& temporary_bytes, const int32_t* keys,
                               int32_t* sorted_keys, const int32_t* values, int32_t* sorted_values,
                               int pairs, int begin_bit = 0, int end_bit = 32,
                               cudaStream_t stream = nullptr);
};

}  // namespace cub
