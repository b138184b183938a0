// Computes lrn across channels. A warp has a pixel, and keeps in shared memory what all windows
// read, so that each power is computed once.
#include <algorithm>
#include <type_traits>

#include "worker/engine/backend/cuda/kernels/device.h"
#include "worker/engine/backend/cuda/kernels/elementwise.h"
#include "worker/engine/backend/cuda/kernels/lanes.h"
#include "worker/engine/backend/cuda/kernels/reduce.h"

namespace trainyard::engine::cuda {
namespace {

// The shared memory that a block has without requesting more.
constexpr int64_t kSharedBytes = 48 << 10;
constexpr int64_t kWarpsMax = 8;
constexpr int64_t kBlocksPerMultiprocessor = 8;
constexpr float kCommonBeta = 0.75F;

struct LrnArguments {
  int64_t pixels = 0;
  int channels = 0;
  int size = 1;
  float factor = 0;  // alpha / size
  float beta = 0;
  float k = 1;
};

// Computes s^-beta for positive s.
__device__ float Power(float s, float beta) {
  if (beta == kCommonBeta) {
    const float root = rsqrtf(s);
    return root * sqrtf(root);
  }
  return powf(s, -beta);
}

// Computes s of channel c from the values that at(channel) gives.
template <class At>
__device__ float ScaleOf(const LrnArguments& a, int c, const At& at) {
  float sum = 0;
  const int begin = max(c - a.size / 2, 0);
  const int end = min(c + (a.size - 1) / 2 + 1, a.channels);
  for (int d = begin; d < end; ++d) {
    const float x = at(d);
    sum = fmaf(x, x, sum);
  }
  return a.k + a.factor * sum;
}

__device__ void ClearPadding(const LrnArguments& a, const Operand& to, int64_t pixel) {
  const int written = static_cast<int>(to.written);
  for (int c = a.channels + static_cast<int>(threadIdx.x % kWarp); c < written; c += kWarp) {
    StoreElement(to, pixel, c, 0);
  }
}

// If a pixel's channels do not fit into shared memory, they are read from global memory.
template <bool kIsShared>
__global__ void LrnForwardKernel(LrnArguments a, Operand x, Operand y) {
  TY_DYNAMIC_SHARED(float, shared);
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const int64_t warps = blockDim.x / kWarp;
  const int64_t warp = threadIdx.x / kWarp;
  float* row = shared + (kIsShared ? warp * a.channels : 0);
  for (int64_t pixel = blockIdx.x * warps + warp; pixel < a.pixels; pixel += gridDim.x * warps) {
    if constexpr (kIsShared) {
      for (int c = lane; c < a.channels; c += kWarp) {
        row[c] = LoadElement(x, pixel, c);
      }
      __syncwarp();
    }
    const auto at = [&](int d) { return kIsShared ? row[d] : LoadElement(x, pixel, d); };
    for (int c = lane; c < a.channels; c += kWarp) {
      StoreElement(y, pixel, c, at(c) * Power(ScaleOf(a, c, at), a.beta));
    }
    ClearPadding(a, y, pixel);
    if constexpr (kIsShared) {
      __syncwarp();
    }
  }
}

// dx_c = dy_c s_c^-beta - 2 factor beta x_c sum of dy_d x_d s_d^(-beta - 1).
template <bool kIsShared>
__global__ void LrnGradientKernel(LrnArguments a, Operand dy, Operand x, Operand dx) {
  TY_DYNAMIC_SHARED(float, shared);
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const int64_t warps = blockDim.x / kWarp;
  const int64_t warp = threadIdx.x / kWarp;
  float* row = shared + (kIsShared ? warp * 3 * a.channels : 0);
  float* terms = row + a.channels;
  float* powers = terms + a.channels;
  for (int64_t pixel = blockIdx.x * warps + warp; pixel < a.pixels; pixel += gridDim.x * warps) {
    const auto at = [&](int d) { return kIsShared ? row[d] : LoadElement(x, pixel, d); };
    if constexpr (kIsShared) {
      for (int c = lane; c < a.channels; c += kWarp) {
        row[c] = LoadElement(x, pixel, c);
      }
      __syncwarp();
      for (int c = lane; c < a.channels; c += kWarp) {
        const float scale = ScaleOf(a, c, at);
        powers[c] = Power(scale, a.beta);
        terms[c] = LoadElement(dy, pixel, c) * row[c] * powers[c] / scale;
      }
      __syncwarp();
    }
    for (int c = lane; c < a.channels; c += kWarp) {
      const int begin = max(c - (a.size - 1) / 2, 0);
      const int end = min(c + a.size / 2 + 1, a.channels);
      float sum = 0;
      for (int d = begin; d < end; ++d) {
        if constexpr (kIsShared) {
          sum += terms[d];
        } else {
          const float scale = ScaleOf(a, d, at);
          sum += LoadElement(dy, pixel, d) * at(d) * Power(scale, a.beta) / scale;
        }
      }
      const float power = kIsShared ? powers[c] : Power(ScaleOf(a, c, at), a.beta);
      StoreElement(dx, pixel, c,
                   LoadElement(dy, pixel, c) * power - 2 * a.factor * a.beta * at(c) * sum);
    }
    ClearPadding(a, dx, pixel);
    if constexpr (kIsShared) {
      __syncwarp();
    }
  }
}

LrnArguments ArgumentsOf(const LrnParameters& lrn, int64_t pixels, int64_t channels) {
  return {pixels,
          static_cast<int>(channels),
          static_cast<int>(lrn.size),
          lrn.alpha / static_cast<float>(lrn.size),
          lrn.beta,
          lrn.k};
}

// There is a warp for each pixel, and as many warps in a block as shared memory has room for. A
// launch that needs no shared memory asks for a little, since the kernel names its beginning.
struct LrnLaunch {
  bool is_shared = false;
  dim3 grid;
  dim3 block;
  size_t shared_bytes = 0;
};
LrnLaunch PlanLrn(int64_t pixels, int64_t channels, int64_t arrays) {
  const int64_t of_warp = arrays * channels * static_cast<int64_t>(sizeof(float));
  const int64_t room = kSharedBytes / std::max<int64_t>(of_warp, 1);
  const int64_t warps = room == 0 ? kWarpsMax : std::min(room, kWarpsMax);
  return {room > 0, dim3(GridBlocks(pixels, warps, kBlocksPerMultiprocessor)),
          dim3(static_cast<unsigned>(warps * kWarp)),
          static_cast<size_t>(room > 0 ? warps * of_warp : kVectorBytes)};
}

}  // namespace

void LrnForward(const LrnParameters& lrn, View x, View y, int64_t pixels, int64_t channels,
                cudaStream_t stream, bool clears_padding) {
  const LrnLaunch launch = PlanLrn(pixels, channels, 1);
  Launch(launch.is_shared ? LrnForwardKernel<true> : LrnForwardKernel<false>, launch.grid,
         launch.block, launch.shared_bytes, stream, ArgumentsOf(lrn, pixels, channels), Input(x),
         Output(y, channels, clears_padding));
}

void LrnGradient(const LrnParameters& lrn, View dy, View x, View dx, int64_t pixels,
                 int64_t channels, cudaStream_t stream, bool clears_padding) {
  const LrnLaunch launch = PlanLrn(pixels, channels, 3);
  Launch(launch.is_shared ? LrnGradientKernel<true> : LrnGradientKernel<false>, launch.grid,
         launch.block, launch.shared_bytes, stream, ArgumentsOf(lrn, pixels, channels), Input(dy),
         Input(x), Output(dx, channels, clears_padding));
}

}  // namespace trainyard::engine::cuda
