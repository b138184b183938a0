#include "tests/unit/testing/cuda_on_cpu_kernels.h"

#include "worker/engine/backend/cuda/kernels/device.h"

namespace trainyard::engine::cuda {
namespace {

__global__ void __launch_bounds__(256)
    SumKernel(const float* __restrict__ x, int64_t count, float* sum) {
  __shared__ float of_warp[32];
  float mine = 0;
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < count;
       i += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    mine += x[i];
  }
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    mine += __shfl_xor_sync(0xFFFFFFFF, mine, lanes);
  }
  if (threadIdx.x % warpSize == 0) {
    of_warp[threadIdx.x / warpSize] = mine;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    float total = 0;
    for (unsigned warp = 0; warp < blockDim.x / warpSize; ++warp) {
      total += of_warp[warp];
    }
    atomicAdd(sum, total);
  }
}

}  // namespace

void Sum(const float* x, int64_t count, unsigned blocks, unsigned threads, float* sum,
         cudaStream_t stream) {
  Launch(SumKernel, dim3(blocks), dim3(threads), 0, stream, x, count, sum);
}

}  // namespace trainyard::engine::cuda
