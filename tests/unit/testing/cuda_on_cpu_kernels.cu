// The kernels that the tests of the emulated device launch.
#include "tests/unit/testing/cuda_on_cpu_kernels.h"

#include "worker/engine/backend/cuda/kernels/device.h"

namespace trainyard::engine::cuda {
namespace {

constexpr unsigned kAllLanes = 0xFFFFFFFF;

__global__ void __launch_bounds__(1024)
    SumKernel(const float* __restrict__ x, int64_t count, float* sum) {
  __shared__ float of_warp[32];
  float mine = 0;
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < count;
       i += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    mine += __ldg(x + i);
  }
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    mine += __shfl_xor_sync(kAllLanes, mine, lanes);
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

__global__ void HistogramKernel(const unsigned* x, int count, int bins, unsigned* counts) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) {
    atomicAdd(&counts[x[i] % static_cast<unsigned>(bins)], 1U);
  }
}

template <bool has_barrier>
__global__ void ReverseKernel(int* x) {
  TY_DYNAMIC_SHARED(int, copied);
  copied[threadIdx.x] = x[threadIdx.x];
  if constexpr (has_barrier) {
    __syncthreads();
  }
  x[threadIdx.x] = copied[blockDim.x - 1 - threadIdx.x];
}

__global__ void LanesKernel(int* out) {
  const int lane = static_cast<int>(threadIdx.x) % warpSize;
  const int odd_in_block = __syncthreads_count(lane % 2);
  if (threadIdx.x >= 32) {
    return;
  }
  const int value = 10 * lane;
  out[lane] = __shfl_sync(kAllLanes, value, 3);
  out[32 + lane] = __shfl_up_sync(kAllLanes, value, 1);
  out[64 + lane] = __shfl_down_sync(kAllLanes, value, 2);
  out[96 + lane] = __shfl_xor_sync(kAllLanes, value, 5);
  out[128 + lane] = __shfl_sync(kAllLanes, value, 1, 8);
  out[160 + lane] = __shfl_up_sync(kAllLanes, value, 1, 8);
  out[192 + lane] = __shfl_down_sync(kAllLanes, value, 1, 8);
  out[224 + lane] = static_cast<int>(__ballot_sync(kAllLanes, lane % 2));
  out[256 + lane] = __any_sync(kAllLanes, lane == 7);
  out[288 + lane] = __all_sync(kAllLanes, lane == 7);
  out[320 + lane] = odd_in_block;
}

__global__ void SpreadDoubleKernel(double* out) {
  const double mine = 0.1 + threadIdx.x;
  __syncwarp();
  out[threadIdx.x] = __shfl_sync(kAllLanes, mine, 31);
}

__global__ void ScaleKernel(float* x, int count, float factor, float term) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) {
    x[i] = x[i] * factor + term;
  }
}

__global__ void CountThreadsKernel(unsigned* seen) {
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  atomicAdd(seen + 2 * block, 1U);
  atomicAdd(seen + 2 * block + 1, thread);
}

__global__ void RoundTripKernel(const float* x, int count, float* as_bf16, float* as_f16) {
  const int i = static_cast<int>(threadIdx.x);
  if (i < count) {
    as_bf16[i] = ToFloat(FromFloat<__nv_bfloat16>(x[i]));
    as_f16[i] = ToFloat(FromFloat<__half>(x[i]));
  }
}

__global__ void MistakeKernel(Mistake mistake, int* out) {
  const unsigned thread = threadIdx.x;
  switch (mistake) {
    case Mistake::kMissedBarrier:
      if (thread != 5) {
        __syncthreads();
      }
      break;
    case Mistake::kTwoBarriers:
      if (thread % 2 == 0) {
        __syncthreads();
      } else {
        __syncthreads();
      }
      break;
    case Mistake::kTwoWarpCalls:
      if (thread % 32 == 0) {
        *out = __any_sync(kAllLanes, 1);
      } else {
        *out = __shfl_sync(kAllLanes, 1, 0);
      }
      break;
    case Mistake::kNotInMask:
      *out = __any_sync(~16U, 1);
      break;
    case Mistake::kMissedVote:
      if (thread != 9) {
        *out = __any_sync(kAllLanes, 1);
      }
      break;
    case Mistake::kReadsOutsideMask:
      if (thread % 32 < 8) {
        *out = __shfl_sync(0xFFU, 1, 12);
      }
      break;
    case Mistake::kMisalignedLoad:
      *out = __ldcs(reinterpret_cast<const int2*>(out + 1)).x;
      break;
    case Mistake::kMisalignedStore:
      __stcs(reinterpret_cast<int2*>(out + 1), int2{1, 2});
      break;
  }
}

}  // namespace

void Sum(const float* x, int64_t count, unsigned blocks, unsigned threads, float* sum,
         cudaStream_t stream) {
  Launch(SumKernel, dim3(blocks), dim3(threads), 0, stream, x, count, sum);
}

void Histogram(const unsigned* x, int count, int bins, unsigned* counts, cudaStream_t stream) {
  const unsigned blocks = static_cast<unsigned>(count + 255) / 256;
  Launch(HistogramKernel, dim3(blocks), dim3(256), 0, stream, x, count, bins, counts);
}

void Reverse(int* x, unsigned threads, cudaStream_t stream) {
  Launch(ReverseKernel<true>, dim3(1), dim3(threads), threads * sizeof(int), stream, x);
}

void ReverseWithoutBarrier(int* x, unsigned threads, cudaStream_t stream) {
  Launch(ReverseKernel<false>, dim3(1), dim3(threads), threads * sizeof(int), stream, x);
}

void ReverseWithShared(int* x, unsigned threads, int shared_bytes, bool is_allowed,
                       cudaStream_t stream) {
  if (is_allowed) {
    cudaFuncSetAttribute(ReverseKernel<true>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         shared_bytes);
  }
  Launch(ReverseKernel<true>, dim3(1), dim3(threads), static_cast<size_t>(shared_bytes), stream, x);
}

void Lanes(int* out, cudaStream_t stream) {
  Launch(LanesKernel, dim3(1), dim3(64), 0, stream, out);
}

void SpreadDouble(double* out, cudaStream_t stream) {
  Launch(SpreadDoubleKernel, dim3(1), dim3(32), 0, stream, out);
}

void Scale(float* x, int count, float factor, float term, cudaStream_t stream) {
  const unsigned blocks = static_cast<unsigned>(count + 255) / 256;
  Launch(ScaleKernel, dim3(blocks), dim3(256), 0, stream, x, count, factor, term);
}

void CountThreads(dim3 grid, dim3 block, unsigned* seen, cudaStream_t stream) {
  Launch(CountThreadsKernel, grid, block, 0, stream, seen);
}

void RoundTrip(const float* x, int count, float* as_bf16, float* as_f16, cudaStream_t stream) {
  Launch(RoundTripKernel, dim3(1), dim3(static_cast<unsigned>(count)), 0, stream, x, count, as_bf16,
         as_f16);
}

void MakeMistake(Mistake mistake, cudaStream_t stream) {
  int* out = nullptr;
  cudaMalloc(reinterpret_cast<void**>(&out), 4 * sizeof(int));
  Launch(MistakeKernel, dim3(1), dim3(64), 0, stream, mistake, out);
}

}  // namespace trainyard::engine::cuda
