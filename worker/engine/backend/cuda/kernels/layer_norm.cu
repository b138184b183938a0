// Computes layer_norm and its gradient. A warp takes a vector of few channels, a block one of many.
// Channels that fit into registers are loaded once and used as often as the formulas need; the rest
// is read again.
#include "worker/engine/backend/cuda/kernels/lanes.h"
#include "worker/engine/backend/cuda/kernels/reduce.h"
#include "worker/engine/backend/cuda/kernels/sequence.h"

namespace trainyard::engine::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
// The number of groups of lanes of one operand that a thread holds. A warp holds 1,024 channels, a
// block 8,192.
constexpr int kHeldGroups = 4;
constexpr int64_t kWarpChannels = int64_t{kHeldGroups} * kLanes * kWarp;

// The part of one vector that a thread of a team handles: groups of lanes, `threads` apart.
template <class T, int operands, int threads>
class Row {
 public:
  // The operands `of` are all read at vector n.
  __device__ Row(const Operand (&of)[operands], int64_t n, int64_t channels, int thread)
      : n_(n), channels_(channels), first_(int64_t{kLanes} * thread) {
#pragma unroll
    for (int i = 0; i < operands; ++i) {
      of_[i] = of[i];
    }
#pragma unroll
    for (int group = 0; group < kHeldGroups; ++group) {
      Load(ChannelOf(group), held_[group]);
    }
  }

  // Calls body(channel, count, values[operands]) for all groups in order.
  template <class Body>
  __device__ void ForGroups(const Body& body) const {
#pragma unroll
    for (int group = 0; group < kHeldGroups; ++group) {
      if (ChannelOf(group) < channels_) {
        Call(ChannelOf(group), held_[group], body);
      }
    }
    for (int64_t channel = ChannelOf(kHeldGroups); channel < channels_;
         channel += int64_t{kLanes} * threads) {
      Group group;
      Load(channel, group);
      Call(channel, group, body);
    }
  }

 private:
  struct Group {
    Lanes<T> of[operands];
  };

  __device__ int64_t ChannelOf(int group) const {
    return first_ + int64_t{group} * kLanes * threads;
  }
  __device__ void Load(int64_t channel, Group& group) const {
    if (channel >= channels_) {
      return;
    }
    const int count = LaneCount(channels_, channel);
#pragma unroll
    for (int i = 0; i < operands; ++i) {
      group.of[i] = LoadLanes<T>(of_[i], n_, channel, count);
    }
  }
  template <class Body>
  __device__ void Call(int64_t channel, const Group& group, const Body& body) const {
    Float8 values[operands];
#pragma unroll
    for (int i = 0; i < operands; ++i) {
      values[i] = Unpack(group.of[i]);
    }
    body(channel, LaneCount(channels_, channel), values);
  }

  Operand of_[operands];
  int64_t n_, channels_, first_;
  Group held_[kHeldGroups];
};

template <int threads>
__device__ float SumOfTeam(float value, float* shared) {
  if constexpr (threads == kWarp) {
    return WarpSum(value);
  } else {
    return BlockSum(value, shared);
  }
}

// Makes an operand for parameters, which are read as a single vector.
Operand Parameter(const float* values, int64_t channels) {
  return Input(View{const_cast<float*>(values), channels, Type::kF32});
}

struct Forward {
  Operand x, y, weight, bias;
  float eps;
  float* mean;
  float* inverse;
  int64_t count, channels;
};

template <class T, int threads>
__global__ void ForwardKernel(Forward f) {
  __shared__ float shared[kWarp];
  constexpr int kTeams = kThreads / threads;
  const int64_t n = static_cast<int64_t>(blockIdx.x) * kTeams + threadIdx.x / threads;
  if (n >= f.count) {
    return;  // together with its whole team
  }
  const int thread = static_cast<int>(threadIdx.x) % threads;
  const Row<T, 1, threads> row({f.x}, n, f.channels, thread);
  const auto channels = static_cast<float>(f.channels);
  float sum = 0;
  row.ForGroups([&](int64_t, int, const Float8* x) {
    for (int i = 0; i < kLanes; ++i) {
      sum += x[0].at[i];  // zero beyond the channels
    }
  });
  const float mean = SumOfTeam<threads>(sum, shared) / channels;
  float squares = 0;
  row.ForGroups([&](int64_t, int count, const Float8* x) {
#pragma unroll
    for (int i = 0; i < kLanes; ++i) {
      const float difference = i < count ? x[0].at[i] - mean : 0;
      squares += difference * difference;
    }
  });
  const float variance = SumOfTeam<threads>(squares, shared) / channels;
  const float inverse = 1 / sqrtf(variance + f.eps);
  row.ForGroups([&](int64_t channel, int count, const Float8* x) {
    const Float8 weight = Unpack(LoadLanes<float>(f.weight, 0, channel, count));
    const Float8 bias = Unpack(LoadLanes<float>(f.bias, 0, channel, count));
    Float8 y;
#pragma unroll
    for (int i = 0; i < kLanes; ++i) {
      y.at[i] = (x[0].at[i] - mean) * inverse * weight.at[i] + bias.at[i];
    }
    StoreLanes<T>(f.y, n, channel, count, y);
  });
  if (thread == 0) {
    f.mean[n] = mean;
    f.inverse[n] = inverse;
  }
}

struct Gradient {
  Operand dy, x, dx, weight;
  const float* mean;
  const float* inverse;
  int64_t count, channels;
};

// With h = (x - mean) inverse and g = dy weight: dx = inverse (g - mean of g - h times the mean of
// g h). The launch bound asks for two blocks a multiprocessor; without it the compiler would use a
// few registers too many for that.
template <class T, int threads>
__global__ void __launch_bounds__(kThreads, 2) InputGradientKernel(Gradient g) {
  __shared__ float shared[kWarp];
  constexpr int kTeams = kThreads / threads;
  const int64_t n = static_cast<int64_t>(blockIdx.x) * kTeams + threadIdx.x / threads;
  if (n >= g.count) {
    return;  // together with its whole team
  }
  const int thread = static_cast<int>(threadIdx.x) % threads;
  const Row<T, 2, threads> row({g.dy, g.x}, n, g.channels, thread);
  const float mean = g.mean[n];
  const float inverse = g.inverse[n];
  float sum = 0;
  float product = 0;
  row.ForGroups([&](int64_t channel, int count, const Float8* dy_x) {
    const Float8 weight = Unpack(LoadLanes<float>(g.weight, 0, channel, count));
#pragma unroll
    for (int i = 0; i < kLanes; ++i) {
      const float scaled = dy_x[0].at[i] * weight.at[i];  // zero beyond the channels
      sum += scaled;
      product += scaled * ((dy_x[1].at[i] - mean) * inverse);
    }
  });
  const auto channels = static_cast<float>(g.channels);
  const float mean_of_sum = SumOfTeam<threads>(sum, shared) / channels;
  const float mean_of_product = SumOfTeam<threads>(product, shared) / channels;
  row.ForGroups([&](int64_t channel, int count, const Float8* dy_x) {
    const Float8 weight = Unpack(LoadLanes<float>(g.weight, 0, channel, count));
    Float8 dx;
#pragma unroll
    for (int i = 0; i < kLanes; ++i) {
      const float normed = (dy_x[1].at[i] - mean) * inverse;
      dx.at[i] = inverse * (dy_x[0].at[i] * weight.at[i] - mean_of_sum - normed * mean_of_product);
    }
    StoreLanes<T>(g.dx, n, channel, count, dx);
  });
}

// Sums over vectors are taken in two stages: slices of them, [slices][2][channels], then the
// slices. Their number depends only on the shape.
constexpr int64_t kSlicesMax = 128;
constexpr int64_t kSliceVectorsMin = 32;

int64_t SlicesOf(int64_t count) {
  return std::clamp<int64_t>(count / kSliceVectorsMin, 1, kSlicesMax);
}

// A warp goes over vectors of a slice that lie kWarps apart, each lane at its group of channels.
template <class T>
__global__ void ParameterGradientKernel(Gradient g, int64_t slices, float* partial) {
  __shared__ float shared[2][kWarps][kWarp][kLanes + 1];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t slice = blockIdx.y;
  const int64_t channel = (static_cast<int64_t>(blockIdx.x) * kWarp + lane) * kLanes;
  const int count = LaneCount(g.channels, channel);
  Float8 dweight = {};
  Float8 dbias = {};
  if (channel < g.channels) {
    const int64_t end = (slice + 1) * g.count / slices;
#pragma unroll 4
    for (int64_t n = slice * g.count / slices + warp; n < end; n += kWarps) {
      const Float8 dy = Unpack(LoadLanes<T>(g.dy, n, channel, count));
      const Float8 x = Unpack(LoadLanes<T>(g.x, n, channel, count));
      const float mean = g.mean[n];
      const float inverse = g.inverse[n];
#pragma unroll
      for (int i = 0; i < kLanes; ++i) {
        dweight.at[i] += dy.at[i] * ((x.at[i] - mean) * inverse);
        dbias.at[i] += dy.at[i];
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kLanes; ++i) {
    shared[0][warp][lane][i] = dweight.at[i];
    shared[1][warp][lane][i] = dbias.at[i];
  }
  __syncthreads();
  // Each thread has one of the block's channels.
  const int64_t own = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (own >= g.channels) {
    return;
  }
  for (int kind = 0; kind < 2; ++kind) {
    float sum = 0;
    for (int i = 0; i < kWarps; ++i) {
      sum += shared[kind][i][threadIdx.x / kLanes][threadIdx.x % kLanes];
    }
    partial[(slice * 2 + kind) * g.channels + own] = sum;
  }
}

__global__ void SumSlicesKernel(const float* partial, int64_t slices, int64_t channels, bool adds,
                                float* dweight, float* dbias) {
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (index >= 2 * channels) {
    return;
  }
  float sum = 0;
#pragma unroll 8
  for (int64_t slice = 0; slice < slices; ++slice) {
    sum += partial[slice * 2 * channels + index];
  }
  float* target = index < channels ? dweight + index : dbias + index - channels;
  *target = (adds ? *target : 0) + sum;
}

unsigned Blocks(int64_t items, int64_t per_block) {
  return static_cast<unsigned>((items + per_block - 1) / per_block);
}

}  // namespace

void LayerNormForward(View x, const float* weight, const float* bias, float eps, View y,
                      float* mean, float* inverse, int64_t count, int64_t channels,
                      cudaStream_t stream) {
  if (count == 0) {
    return;
  }
  const Forward forward = {Input(x),
                           Output(y, channels, true),
                           Parameter(weight, channels),
                           Parameter(bias, channels),
                           eps,
                           mean,
                           inverse,
                           count,
                           channels};
  WithTypeOf(
      [&](auto* type) {
        using T = std::remove_pointer_t<decltype(type)>;
        if (channels > kWarpChannels) {
          Launch(ForwardKernel<T, kThreads>, dim3(Blocks(count, 1)), dim3(kThreads), 0, stream,
                 forward);
        } else {
          Launch(ForwardKernel<T, kWarp>, dim3(Blocks(count, kWarps)), dim3(kThreads), 0, stream,
                 forward);
        }
      },
      x, y);
}

int64_t LayerNormWorkspace(int64_t count, int64_t channels) {
  return SlicesOf(count) * 2 * channels * int64_t{sizeof(float)};
}

void LayerNormGradient(View dy, View x, const float* weight, const float* mean,
                       const float* inverse, View dx, float* dweight, float* dbias, bool adds,
                       int64_t count, int64_t channels, void* workspace, cudaStream_t stream) {
  if (count == 0) {
    return;
  }
  const Gradient gradient = {
      Input(dy), Input(x), Output(dx, channels, true), Parameter(weight, channels), mean, inverse,
      count,     channels};
  const int64_t slices = SlicesOf(count);
  auto* partial = static_cast<float*>(workspace);
  WithTypeOf(
      [&](auto* type) {
        using T = std::remove_pointer_t<decltype(type)>;
        // This comes before dx, which may overwrite dy.
        Launch(ParameterGradientKernel<T>,
               dim3(Blocks(channels, kThreads), static_cast<unsigned>(slices)), dim3(kThreads), 0,
               stream, gradient, slices, partial);
        if (!dx) {
          return;
        }
        if (channels > kWarpChannels) {
          Launch(InputGradientKernel<T, kThreads>, dim3(Blocks(count, 1)), dim3(kThreads), 0,
                 stream, gradient);
        } else {
          Launch(InputGradientKernel<T, kWarp>, dim3(Blocks(count, kWarps)), dim3(kThreads), 0,
                 stream, gradient);
        }
      },
      dy, x, dx);
  Launch(SumSlicesKernel, dim3(Blocks(2 * channels, kThreads)), dim3(kThreads), 0, stream, partial,
         slices, channels, adds, dweight, dbias);
}

}  // namespace trainyard::engine::cuda
