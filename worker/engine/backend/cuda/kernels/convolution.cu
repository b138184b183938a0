// Computes convolutions as sums of products, with a thread or a block for each element that is
// written.
#include "worker/engine/backend/cuda/kernels/convolution.h"

#include <algorithm>
#include <type_traits>

#include "worker/engine/backend/cuda/kernels/device.h"
#include "worker/engine/backend/cuda/kernels/reduce.h"

namespace trainyard::engine::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kBlocksPerMultiprocessor = 8;

template <class T>
struct Typed {
  T* data = nullptr;
  int64_t stride = 0;
  int64_t written = 0;  // channels, including the padding if it is cleared

  __device__ T& at(int64_t pixel, int64_t channel) const { return data[pixel * stride + channel]; }
};

template <class T>
Typed<T> TypedOf(const View& view, int64_t channels, bool clears_padding) {
  const int64_t padded = PaddedChannels(channels, view.type);
  return {static_cast<T*>(view.data), view.stride,
          clears_padding && view.stride >= padded ? padded : channels};
}

// Returns element [k, i, j, 0] of the weight.
__device__ int64_t WeightRow(const ConvShape& s, int64_t k, int64_t i, int64_t j) {
  return ((k * s.kernel + i) * s.kernel + j) * s.weight_stride;
}

// Computes where product i of an output at `out` reads; returns false for padding.
__device__ bool InputAt(const ConvShape& s, int64_t out, int64_t i, int64_t size, int64_t& at) {
  at = out * s.stride + i * s.dilation - s.padding;
  return at >= 0 && at < size;
}
// Computes which output reads `in` by its product i. Returns false if none does.
__device__ bool OutputAt(const ConvShape& s, int64_t in, int64_t i, int64_t size, int64_t& at) {
  const int64_t reach = in + s.padding - i * s.dilation;
  at = reach / s.stride;
  return reach >= 0 && reach % s.stride == 0 && at < size;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    ForwardKernel(ConvShape s, Typed<T> x, const T* weight, const float* bias, bool relu,
                  Typed<T> y) {
  const int64_t inputs = s.in.channels / s.groups;
  const int64_t outputs = s.out.channels / s.groups;
  const int64_t count = s.out.rows * s.out.height * s.out.width * y.written;
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t at = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; at < count;
       at += step) {
    const int64_t k = at % y.written;
    const int64_t pixel = at / y.written;
    const int64_t ow = pixel % s.out.width;
    const int64_t oh = pixel / s.out.width % s.out.height;
    const int64_t row = pixel / s.out.width / s.out.height;
    float sum = 0;
    if (k < s.out.channels) {
      sum = bias == nullptr ? 0.0F : bias[k];
      const int64_t first = k / outputs * inputs;
      for (int64_t i = 0; i < s.kernel; ++i) {
        for (int64_t j = 0; j < s.kernel; ++j) {
          int64_t h = 0;
          int64_t w = 0;
          if (InputAt(s, oh, i, s.in.height, h) && InputAt(s, ow, j, s.in.width, w)) {
            const T* weights = weight + WeightRow(s, k, i, j);
            const T* from = &x.at((row * s.in.height + h) * s.in.width + w, first);
            for (int64_t c = 0; c < inputs; ++c) {
              sum = fmaf(ToFloat(weights[c]), ToFloat(from[c]), sum);
            }
          }
        }
      }
      sum = relu && sum < 0 ? 0.0F : sum;
    }
    y.at(pixel, k) = FromFloat<T>(sum);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    InputGradientKernel(ConvShape s, Typed<T> dy, const T* weight, Typed<T> dx) {
  const int64_t inputs = s.in.channels / s.groups;
  const int64_t outputs = s.out.channels / s.groups;
  const int64_t count = s.in.rows * s.in.height * s.in.width * dx.written;
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t at = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; at < count;
       at += step) {
    const int64_t channel = at % dx.written;
    const int64_t pixel = at / dx.written;
    const int64_t w = pixel % s.in.width;
    const int64_t h = pixel / s.in.width % s.in.height;
    const int64_t row = pixel / s.in.width / s.in.height;
    float sum = 0;
    if (channel < s.in.channels) {
      const int64_t first = channel / inputs * outputs;
      const int64_t c = channel % inputs;
      for (int64_t i = 0; i < s.kernel; ++i) {
        for (int64_t j = 0; j < s.kernel; ++j) {
          int64_t oh = 0;
          int64_t ow = 0;
          if (OutputAt(s, h, i, s.out.height, oh) && OutputAt(s, w, j, s.out.width, ow)) {
            const T* from = &dy.at((row * s.out.height + oh) * s.out.width + ow, 0);
            for (int64_t k = first; k < first + outputs; ++k) {
              sum = fmaf(ToFloat(weight[WeightRow(s, k, i, j) + c]), ToFloat(from[k]), sum);
            }
          }
        }
      }
    }
    dx.at(pixel, channel) = FromFloat<T>(sum);
  }
}

// A block computes one element of the weight; its threads share the pixels.
template <class T>
__global__ void __launch_bounds__(kThreads)
    WeightGradientKernel(ConvShape s, Typed<T> dy, Typed<T> x, float* dweight, bool adds) {
  __shared__ float shared[kWarp];
  const int64_t inputs = s.in.channels / s.groups;
  const int64_t outputs = s.out.channels / s.groups;
  const int64_t pixels = s.out.rows * s.out.height * s.out.width;
  const int64_t count = s.out.channels * s.kernel * s.kernel * inputs;
  for (int64_t at = blockIdx.x; at < count; at += gridDim.x) {
    const int64_t c = at % inputs;
    const int64_t j = at / inputs % s.kernel;
    const int64_t i = at / inputs / s.kernel % s.kernel;
    const int64_t k = at / inputs / s.kernel / s.kernel;
    const int64_t channel = k / outputs * inputs + c;
    float sum = 0;
    for (int64_t pixel = threadIdx.x; pixel < pixels; pixel += blockDim.x) {
      const int64_t ow = pixel % s.out.width;
      const int64_t oh = pixel / s.out.width % s.out.height;
      const int64_t row = pixel / s.out.width / s.out.height;
      int64_t h = 0;
      int64_t w = 0;
      if (InputAt(s, oh, i, s.in.height, h) && InputAt(s, ow, j, s.in.width, w)) {
        sum = fmaf(ToFloat(dy.at(pixel, k)),
                   ToFloat(x.at((row * s.in.height + h) * s.in.width + w, channel)), sum);
      }
    }
    sum = BlockSum(sum, shared);
    if (threadIdx.x == 0) {
      float* to = dweight + WeightRow(s, k, i, j) + c;
      *to = adds ? *to + sum : sum;
    }
  }
}

unsigned BlocksFor(int64_t items) {
  return GridBlocks(items, kThreads, kBlocksPerMultiprocessor);
}

}  // namespace

void ConvForward(const ConvShape& shape, View x, const void* weight, const float* bias, bool relu,
                 View y, bool clears_padding, cudaStream_t stream) {
  WithType(x.type, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const Typed<T> to = TypedOf<T>(y, shape.out.channels, clears_padding);
    Launch(ForwardKernel<T>, dim3(BlocksFor(shape.out.pixels() * to.written)), dim3(kThreads), 0,
           stream, shape, TypedOf<T>(x, shape.in.channels, false), static_cast<const T*>(weight),
           bias, relu, to);
  });
}

void ConvInputGradient(const ConvShape& shape, View dy, const void* weight, View dx,
                       bool clears_padding, cudaStream_t stream) {
  WithType(dy.type, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const Typed<T> to = TypedOf<T>(dx, shape.in.channels, clears_padding);
    Launch(InputGradientKernel<T>, dim3(BlocksFor(shape.in.pixels() * to.written)), dim3(kThreads),
           0, stream, shape, TypedOf<T>(dy, shape.out.channels, false),
           static_cast<const T*>(weight), to);
  });
}

void ConvWeightGradient(const ConvShape& shape, View dy, View x, float* dweight, bool adds,
                        cudaStream_t stream) {
  WithType(x.type, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const int64_t elements =
        shape.out.channels * shape.kernel * shape.kernel * (shape.in.channels / shape.groups);
    Launch(WeightGradientKernel<T>, dim3(GridBlocks(elements, 1, kBlocksPerMultiprocessor)),
           dim3(kThreads), 0, stream, shape, TypedOf<T>(dy, shape.out.channels, false),
           TypedOf<T>(x, shape.in.channels, false), dweight, adds);
  });
}

}  // namespace trainyard::engine::cuda
