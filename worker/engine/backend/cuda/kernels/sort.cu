// Calls the radix sort of CUB. It has a file of its own, since CUB's kernels take long to compile.
#include "worker/engine/backend/cuda/kernels/sort.h"

#include <cub/device/device_radix_sort.cuh>

namespace trainyard::engine::cuda {

cudaError_t SortPairs(const int32_t* keys, const int32_t* values, int64_t pairs, int bits,
                      int32_t* sorted_keys, int32_t* sorted_values, void* workspace,
                      cudaStream_t stream) {
  auto bytes = static_cast<size_t>(SortWorkspace(pairs));
  return cub::DeviceRadixSort::SortPairs(workspace, bytes, keys, sorted_keys, values, sorted_values,
                                         static_cast<int>(pairs), /*begin_bit=*/0, bits, stream);
}

}  // namespace trainyard::engine::cuda
