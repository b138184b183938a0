// Computes ops of one element at a time. A thread takes several groups of eight channels that lie
// far apart, so that their loads are in flight together.
#include "worker/engine/backend/cuda/kernels/elementwise.h"

#include <algorithm>
#include <initializer_list>
#include <type_traits>

#include "worker/engine/backend/cuda/kernels/device.h"
#include "worker/engine/backend/cuda/kernels/lanes.h"
#include "worker/engine/backend/cuda/kernels/reduce.h"

namespace trainyard::engine::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kBlocksPerMultiprocessor = 8;
// The number of groups that one launch counts, so that an index plus its stride fits into 32 bits.
constexpr int64_t kGroupsMax = int64_t{1} << 30;

// The functions in which the ops of a kernel differ: y = f(a, b).
struct Relu {
  __device__ float operator()(float x, float) const {
    return x < 0 ? 0.0F : x;  // a NaN stays
  }
};
struct Tanh {
  __device__ float operator()(float x, float) const { return tanhf(x); }
};
struct Sigmoid {
  __device__ float operator()(float x, float) const { return 1 / (1 + expf(-x)); }
};

constexpr float kInverseSqrt2 = 0.70710678F;
constexpr float kInverseSqrt2Pi = 0.39894228F;
// The constants of the approximation by tanh: tanh(kScale (x + kCube x^3)).
constexpr float kScale = 0.79788456F;  // sqrt(2 / pi)
constexpr float kCube = 0.044715F;

struct Gelu {
  __device__ float operator()(float x, float) const {
    return 0.5F * x * (1 + erff(x * kInverseSqrt2));
  }
};
struct GeluTanh {
  __device__ float operator()(float x, float) const {
    return 0.5F * x * (1 + tanhf(kScale * (x + kCube * x * x * x)));
  }
};

// The gradients: a is dy, b is what was saved.
struct ReluGradient {
  __device__ float operator()(float dy, float y) const { return y > 0 ? dy : 0.0F; }
};
struct TanhGradient {
  __device__ float operator()(float dy, float y) const { return dy * (1 - y * y); }
};
struct SigmoidGradient {
  __device__ float operator()(float dy, float y) const { return dy * y * (1 - y); }
};
struct GeluGradient {
  __device__ float operator()(float dy, float x) const {
    return dy * (0.5F * (1 + erff(x * kInverseSqrt2)) + x * kInverseSqrt2Pi * expf(-0.5F * x * x));
  }
};
struct GeluTanhGradient {
  __device__ float operator()(float dy, float x) const {
    const float t = tanhf(kScale * (x + kCube * x * x * x));
    return dy * (0.5F * (1 + t) + 0.5F * x * (1 - t * t) * kScale * (1 + 3 * kCube * x * x));
  }
};

struct Sum {
  bool relu = false;

  __device__ float operator()(float a, float b) const {
    const float sum = a + b;
    return relu && sum < 0 ? 0.0F : sum;
  }
};
struct Identity {
  __device__ float operator()(float x, float) const { return x; }
};

// These are groups of eight channels of all pixels. The index of a group is pixel * groups of a
// pixel + group.
struct Extent {
  uint32_t groups = 0;
  Divider per_pixel;
  int64_t channels = 0;
};

template <class From, class To, int kInputs, class F>
__global__ void __launch_bounds__(kThreads)
    MapKernel(Extent extent, Operand a, Operand b, Operand y, F f) {
  constexpr int kUnroll = kInputs == 1 ? 4 : 2;
  const uint32_t step = gridDim.x * blockDim.x * kUnroll;
  for (uint32_t first = blockIdx.x * blockDim.x * kUnroll + threadIdx.x; first < extent.groups;
       first += step) {
    Lanes<From> of_a[kUnroll];
    Lanes<From> of_b[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      uint32_t pixel = first + static_cast<uint32_t>(u) * blockDim.x;
      if (pixel < extent.groups) {
        const int64_t channel = int64_t{extent.per_pixel.Split(pixel)} * kLanes;
        const int count = LaneCount(extent.channels, channel);
        of_a[u] = LoadLanes<From>(a, pixel, channel, count);
        if constexpr (kInputs == 2) {
          of_b[u] = LoadLanes<From>(b, pixel, channel, count);
        }
      }
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      uint32_t pixel = first + static_cast<uint32_t>(u) * blockDim.x;
      if (pixel < extent.groups) {
        const int64_t channel = int64_t{extent.per_pixel.Split(pixel)} * kLanes;
        const int count = LaneCount(extent.channels, channel);
        const Float8 x = Unpack(of_a[u]);
        const Float8 second = kInputs == 2 ? Unpack(of_b[u]) : x;
        Float8 values = {};
#pragma unroll
        for (int i = 0; i < kLanes; ++i) {
          values.at[i] = f(x.at[i], second.at[i]);
        }
        StoreLanes<To>(y, pixel, channel, count, values);
      }
    }
  }
}

View Advance(View view, int64_t pixels) {
  if (view) {
    view.data = static_cast<unsigned char*>(view.data) + pixels * view.stride * SizeOf(view.type);
  }
  return view;
}

// Launches the kernel over as many pixels at a time as it can count.
template <class From, class To, int kInputs, class F>
void Map(View a, View b, View y, int64_t pixels, int64_t channels, bool clears_padding, const F& f,
         cudaStream_t stream) {
  const int64_t groups = LaneGroups(channels);
  if (groups == 0) {
    return;
  }
  const int64_t pixels_max = std::max<int64_t>(1, kGroupsMax / groups);
  for (int64_t begin = 0; begin < pixels; begin += pixels_max) {
    const int64_t count = std::min(pixels_max, pixels - begin);
    const Extent extent = {static_cast<uint32_t>(count * groups), Divider(groups), channels};
    const unsigned blocks =
        GridBlocks(count * groups, kThreads * (kInputs == 1 ? 4 : 2), kBlocksPerMultiprocessor);
    Launch(MapKernel<From, To, kInputs, F>, dim3(blocks), dim3(kThreads), 0, stream, extent,
           Input(Advance(a, begin)), Input(Advance(b, begin)),
           Output(Advance(y, begin), channels, clears_padding), f);
  }
}

// If no view has gaps, all pixels are treated as one pixel of many channels, so that only the last
// group can be short.
void MergePixels(int64_t& pixels, int64_t& channels, std::initializer_list<View> views) {
  if (pixels * channels > kGroupsMax * kLanes) {
    return;
  }
  for (const View& view : views) {
    if (view && view.stride != channels) {
      return;
    }
  }
  channels *= pixels;
  pixels = 1;
}

template <int kInputs, class F>
void MapTyped(View a, View b, View y, int64_t pixels, int64_t channels, bool clears_padding,
              const F& f, cudaStream_t stream) {
  MergePixels(pixels, channels, {a, b, y});
  WithTypeOf(
      [&](auto* type) {
        using T = std::remove_pointer_t<decltype(type)>;
        Map<T, T, kInputs>(a, b, y, pixels, channels, clears_padding, f, stream);
      },
      y, a, b);
}

// Calls body(function, gradient) with the functions of the op.
template <class Body>
void WithFunctionsOf(Unary op, const Body& body) {
  switch (op) {
    case Unary::kRelu:
      return body(Relu(), ReluGradient());
    case Unary::kTanh:
      return body(Tanh(), TanhGradient());
    case Unary::kSigmoid:
      return body(Sigmoid(), SigmoidGradient());
    case Unary::kGelu:
      return body(Gelu(), GeluGradient());
    case Unary::kGeluTanh:
      return body(GeluTanh(), GeluTanhGradient());
  }
}

}  // namespace

void UnaryForward(Unary op, View x, View y, int64_t pixels, int64_t channels, bool clears_padding,
                  cudaStream_t stream) {
  WithFunctionsOf(op, [&](const auto& f, const auto&) {
    MapTyped<1>(x, View(), y, pixels, channels, clears_padding, f, stream);
  });
}

void UnaryGradient(Unary op, View dy, View saved, View dx, int64_t pixels, int64_t channels,
                   cudaStream_t stream, bool clears_padding) {
  WithFunctionsOf(op, [&](const auto&, const auto& gradient) {
    MapTyped<2>(dy, saved, dx, pixels, channels, clears_padding, gradient, stream);
  });
}

void Add(View a, View b, View y, int64_t pixels, int64_t channels, cudaStream_t stream,
         bool clears_padding) {
  MapTyped<2>(a, b, y, pixels, channels, clears_padding, Sum(), stream);
}

void Copy(View x, View y, int64_t pixels, int64_t channels, bool clears_padding,
          cudaStream_t stream) {
  MergePixels(pixels, channels, {x, y});
  WithType(x.type, [&](auto* from) {
    WithType(y.type, [&](auto* to) {
      using From = std::remove_pointer_t<decltype(from)>;
      using To = std::remove_pointer_t<decltype(to)>;
      Map<From, To, 1>(x, View(), y, pixels, channels, clears_padding, Identity(), stream);
    });
  });
}

void AddBias(View x, const void* bias, bool relu, int64_t pixels, int64_t channels,
             cudaStream_t stream) {
  // All pixels read the same row.
  const View row = {const_cast<void*>(bias), 0, x.type};
  WithType(x.type, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    Map<T, T, 2>(x, row, x, pixels, channels, false, Sum{relu}, stream);
  });
}

}  // namespace trainyard::engine::cuda
