// Computes upsampling to the nearest neighbour. A thread takes neighbouring channels of a pixel
// that is written, and looks up its source.
#include <type_traits>

#include "worker/engine/backend/cuda/kernels/device.h"
#include "worker/engine/backend/cuda/kernels/lanes.h"
#include "worker/engine/backend/cuda/kernels/pool.h"
#include "worker/engine/backend/cuda/kernels/reduce.h"

namespace trainyard::engine::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kBlocksPerMultiprocessor = 8;

// Calls body(pixel, channel) for the elements of `pixels` pixels that this thread writes.
template <class Body>
__device__ void ForGroups(int64_t pixels, int64_t channels, const Body& body) {
  const int64_t groups = LaneGroups(channels);
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t at = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       at < pixels * groups; at += step) {
    const int64_t pixel = at / groups;
    body(pixel, (at - pixel * groups) * kLanes);
  }
}

// `in` is the smaller image. Lines of the larger one, `scale` for each of the smaller, follow each
// other over all rows.
template <class T>
__global__ void __launch_bounds__(kThreads)
    ForwardKernel(Operand x, Operand y, ImageShape in, int64_t scale) {
  const int64_t width = in.width * scale;
  ForGroups(in.pixels() * scale * scale, in.channels, [&](int64_t pixel, int64_t channel) {
    const int64_t line = pixel / width;
    const int64_t from = line / scale * in.width + (pixel - line * width) / scale;
    const int count = LaneCount(in.channels, channel);
    StoreLanes<T>(y, pixel, channel, count, Unpack(LoadLanes<T>(x, from, channel, count)));
  });
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    GradientKernel(Operand dy, Operand dx, ImageShape in, int64_t scale) {
  const int64_t width = in.width * scale;
  ForGroups(in.pixels(), in.channels, [&](int64_t pixel, int64_t channel) {
    const int64_t line = pixel / in.width;
    const int64_t first = line * scale * width + (pixel - line * in.width) * scale;
    const int count = LaneCount(in.channels, channel);
    Float8 sum = {};
    for (int64_t i = 0; i < scale; ++i) {
      for (int64_t j = 0; j < scale; ++j) {
        const Float8 values = Unpack(LoadLanes<T>(dy, first + i * width + j, channel, count));
#pragma unroll
        for (int lane = 0; lane < kLanes; ++lane) {
          sum.at[lane] += values.at[lane];
        }
      }
    }
    StoreLanes<T>(dx, pixel, channel, count, sum);
  });
}

}  // namespace

void UpsampleForward(View x, View y, const ImageShape& in, int64_t scale, bool clears_padding,
                     cudaStream_t stream) {
  const int64_t items = in.pixels() * scale * scale * LaneGroups(in.channels);
  WithTypeOf(
      [&](auto* type) {
        using T = std::remove_pointer_t<decltype(type)>;
        Launch(ForwardKernel<T>, dim3(GridBlocks(items, kThreads, kBlocksPerMultiprocessor)),
               dim3(kThreads), 0, stream, Input(x), Output(y, in.channels, clears_padding), in,
               scale);
      },
      y, x);
}

void UpsampleGradient(View dy, View dx, const ImageShape& in, int64_t scale, bool clears_padding,
                      cudaStream_t stream) {
  const int64_t items = in.pixels() * LaneGroups(in.channels);
  WithTypeOf(
      [&](auto* type) {
        using T = std::remove_pointer_t<decltype(type)>;
        Launch(GradientKernel<T>, dim3(GridBlocks(items, kThreads, kBlocksPerMultiprocessor)),
               dim3(kThreads), 0, stream, Input(dy), Output(dx, in.channels, clears_padding), in,
               scale);
      },
      dx, dy);
}

}  // namespace trainyard::engine::cuda
