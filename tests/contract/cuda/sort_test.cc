// Asks CUB itself what its radix sort enqueues and needs. The real host code of CUB runs here over
// a runtime that only counts, so no GPU is needed, and no kernel runs.
#include "worker/engine/backend/cuda/kernels/sort.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>

namespace {

struct Counts {
  int64_t launches = 0;
  std::set<cudaStream_t> streams;
  // The bytes that are filled lie between these two addresses.
  uintptr_t begin = UINTPTR_MAX;
  uintptr_t end = 0;
};
Counts counts;
cudaStream_t launch_stream = nullptr;

cudaError_t Count(cudaStream_t stream) {
  ++counts.launches;
  counts.streams.insert(stream);
  return cudaSuccess;
}

}  // namespace

// The functions of the runtime that nvcc and CUB call. The last two are how a launch reaches the
// runtime in versions 12 and 13 of CUDA.
extern "C" {

void** __cudaRegisterFatBinary(void*) {
  return nullptr;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, const char*, char*, const char*, int, uint3*, uint3*, dim3*,
                            dim3*, int*) {}
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, cudaStream_t stream) {
  launch_stream = stream;
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  *grid = *block = dim3();
  *shared = 0;
  *static_cast<cudaStream_t*>(stream) = launch_stream;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) {
  return cudaSuccess;
}
cudaError_t cudaGetLastError() {
  return cudaSuccess;
}
cudaError_t cudaPeekAtLastError() {
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 132;
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  *attributes = {};
  attributes->ptxVersion = attributes->binaryVersion = CUDA_ARCHITECTURE;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int,
                                                                   size_t, unsigned) {
  *blocks = 2;
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int, size_t bytes, cudaStream_t stream) {
  const auto begin = reinterpret_cast<uintptr_t>(to);
  counts.begin = std::min(counts.begin, begin);
  counts.end = std::max(counts.end, begin + bytes);
  return Count(stream);
}
cudaError_t cudaMemcpyAsync(void*, const void*, size_t, cudaMemcpyKind, cudaStream_t stream) {
  return Count(stream);
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void*) {
  *kernel = nullptr;
  return cudaSuccess;
}
cudaError_t cudaLaunchKernel(const void*, dim3, dim3, void**, size_t, cudaStream_t stream) {
  return Count(stream);
}
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t stream) {
  return Count(stream);
}

}  // extern "C"

namespace trainyard::engine::cuda {
namespace {

template <class T>
T* At(uintptr_t address) {
  return reinterpret_cast<T*>(address);
}

TEST(Sort, EnqueuesAsManyKernelsAndFillsAsAreCounted) {
  const auto stream = At<CUstream_st>(0x1234);
  constexpr uintptr_t kWorkspace = uintptr_t{1} << 40;
  for (const int64_t pairs : {0, 1, 100, 4864, 4865, 16384, 1 << 20, (1 << 28) - 9000}) {
    for (const int bits : {1, 7, 8, 9, 16, 17, 24, 25, 31}) {
      SCOPED_TRACE(::testing::Message() << pairs << " pairs, " << bits << " bits");
      counts = {};
      ASSERT_EQ(SortPairs(At<int32_t>(uintptr_t{1} << 32), At<int32_t>(uintptr_t{2} << 32), pairs,
                          bits, At<int32_t>(uintptr_t{3} << 32), At<int32_t>(uintptr_t{4} << 32),
                          At<void>(kWorkspace), stream),
                cudaSuccess)
          << "CUB needs more than " << SortWorkspace(pairs) << " bytes";
      EXPECT_EQ(counts.launches, SortLaunches(pairs, bits));
      if (counts.launches == 0) continue;
      EXPECT_EQ(counts.streams, std::set<cudaStream_t>{stream});
      if (counts.end == 0) continue;
      EXPECT_GE(counts.begin, kWorkspace);
      EXPECT_LE(counts.end, kWorkspace + static_cast<uintptr_t>(SortWorkspace(pairs)));
    }
  }
}

}  // namespace
}  // namespace trainyard::engine::cuda
