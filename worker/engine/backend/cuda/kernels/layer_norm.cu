// Computes layer_norm and its gradient. A warp takes a vector of few channels, a block one of many.
#include "worker/engine/backend/cuda/kernels/sequence.h"
#include "worker/engine/backend/cuda/kernels/team_row.h"

namespace trainyard::engine::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
// The number of groups of lanes of one operand that a thread holds. In the forward kernel a warp
// holds 1,024 channels, and a block 8,192.
constexpr int kHeldGroups = 4;
constexpr int64_t kWarpChannels = int64_t{kHeldGroups} * kLanes * kWarp;

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
  const TeamRow<T, 1, threads, kHeldGroups> row({f.x}, n, f.channels, thread);
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
  Operand dy, x, addend, dx, weight;
  const float* mean;
  const float* inverse;
  int64_t count, channels;
};

// A warp takes a vector of at most kWarpGradientChannels, since it keeps a group of lanes a thread,
// and a block one of at most kBlockChannels. So few registers let many of them wait for memory at a
// time. Longer vectors take a larger block, and more groups a thread.
constexpr int64_t kWarpGradientChannels = int64_t{kLanes} * kWarp;
constexpr int kBlockThreads = 128;
constexpr int kGradientThreads = 768;  // that a multiprocessor has room for
constexpr int64_t kBlockChannels = int64_t{kLanes} * kBlockThreads;

// The sums over the vectors of a block lie in [blocks][2][channels]: first those of dweight, then
// those of dbias. The number of blocks depends only on the shape. An H200 has room for as many of
// kBlockThreads at a time, and each takes enough vectors for its sums to be few beside them.
constexpr int64_t kGradientBlocksMax = 768;
constexpr int64_t kTeamVectorsMin = 16;

int64_t GradientBlocks(int64_t count, int64_t channels) {
  const int64_t teams = channels > kWarpGradientChannels ? 1 : kWarps;
  return std::clamp<int64_t>(count / (teams * kTeamVectorsMin), 1, kGradientBlocksMax);
}

// Adds up what the warps of a block have for the same channels, and writes it. All threads call it.
__device__ inline void WriteSumsOfWarps(const Float8& of_lane, int64_t channels, float* sums) {
  __shared__ float shared[kWarps][kWarp][kLanes + 1];
#pragma unroll
  for (int i = 0; i < kLanes; ++i) {
    shared[threadIdx.x / kWarp][threadIdx.x % kWarp][i] = of_lane.at[i];
  }
  __syncthreads();
  // Each thread has one of the channels.
  if (threadIdx.x < channels) {
    float sum = 0;
    for (int i = 0; i < kWarps; ++i) {
      sum += shared[i][threadIdx.x / kLanes][threadIdx.x % kLanes];
    }
    sums[threadIdx.x] = sum;
  }
  __syncthreads();
}

// Computes dx and the sums of the parameters' gradients in one pass over dy and x. With h = (x -
// mean) inverse and g = dy weight: dx = inverse (g - mean of g - h times the mean of g h) + addend,
// dweight = sum of dy h and dbias = sum of dy. A team goes over vectors that lie as far apart as
// there are teams, and its threads keep the sums of their channels in registers.
template <class T, int block, int threads, int held>
__global__ void __launch_bounds__(block, held > 1 ? 1 : kGradientThreads / block)
    GradientKernel(Gradient g, float* partial) {
  __shared__ float shared[kWarp];
  constexpr int kTeams = block / threads;
  const int thread = static_cast<int>(threadIdx.x) % threads;
  float* const sums = partial + int64_t{2} * blockIdx.x * g.channels;
  const auto channels = static_cast<float>(g.channels);
  Float8 dweight[held] = {};
  Float8 dbias[held] = {};
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kTeams + threadIdx.x / threads;
  for (int64_t n = first; n < g.count; n += static_cast<int64_t>(gridDim.x) * kTeams) {
    const TeamRow<T, 2, threads, held, (held > 1)> row({g.dy, g.x}, n, g.channels, thread);
    const float mean = g.mean[n];
    const float inverse = g.inverse[n];
    float sum = 0;
    float product = 0;
    // Adds a group to the two sums of its vector, and leaves h of the group in `normed`.
    const auto add = [&](int64_t channel, int count, const Float8* dy_x, Float8& normed) {
      const Float8 weight = Unpack(LoadLanes<float>(g.weight, 0, channel, count));
#pragma unroll
      for (int i = 0; i < kLanes; ++i) {
        normed.at[i] = (dy_x[1].at[i] - mean) * inverse;
        const float scaled = dy_x[0].at[i] * weight.at[i];  // zero beyond the channels
        sum += scaled;
        product += scaled * normed.at[i];
      }
    };
    row.ForHeld([&](int group, int64_t channel, int count, const Float8* dy_x) {
      Float8 normed;
      add(channel, count, dy_x, normed);
#pragma unroll
      for (int i = 0; i < kLanes; ++i) {
        dweight[group].at[i] += dy_x[0].at[i] * normed.at[i];
        dbias[group].at[i] += dy_x[0].at[i];
      }
    });
    // Only this thread has these channels, so their sums can stay in memory.
    row.ForRest([&](int64_t channel, int count, const Float8* dy_x) {
      Float8 normed;
      add(channel, count, dy_x, normed);
#pragma unroll
      for (int i = 0; i < kLanes; ++i) {
        if (i < count) {
          float* const of_weight = sums + channel + i;
          float* const of_bias = of_weight + g.channels;
          *of_weight = (n == first ? 0 : *of_weight) + dy_x[0].at[i] * normed.at[i];
          *of_bias = (n == first ? 0 : *of_bias) + dy_x[0].at[i];
        }
      }
    });
    if (!g.dx) {
      continue;
    }
    const float mean_of_sum = SumOfTeam<threads>(sum, shared) / channels;
    const float mean_of_product = SumOfTeam<threads>(product, shared) / channels;
    row.ForGroups([&](int64_t channel, int count, const Float8* dy_x) {
      const Float8 weight = Unpack(LoadLanes<float>(g.weight, 0, channel, count));
      Float8 dx;
#pragma unroll
      for (int i = 0; i < kLanes; ++i) {
        const float normed = (dy_x[1].at[i] - mean) * inverse;
        dx.at[i] =
            inverse * (dy_x[0].at[i] * weight.at[i] - mean_of_sum - normed * mean_of_product);
      }
      if (g.addend) {
        const Float8 addend = Unpack(LoadLanes<T>(g.addend, n, channel, count));
#pragma unroll
        for (int i = 0; i < kLanes; ++i) {
          dx.at[i] += addend.at[i];
        }
      }
      StoreLanes<T>(g.dx, n, channel, count, dx);
    });
  }
  if constexpr (threads < block) {
    static_assert(threads == kWarp && block == kThreads && held == 1);
    WriteSumsOfWarps(dweight[0], g.channels, sums);
    WriteSumsOfWarps(dbias[0], g.channels, sums + g.channels);
  } else {
#pragma unroll
    for (int group = 0; group < held; ++group) {
      const int64_t channel = int64_t{kLanes} * (thread + group * threads);
      const int count = channel < g.channels ? LaneCount(g.channels, channel) : 0;
#pragma unroll
      for (int i = 0; i < kLanes; ++i) {
        if (i < count) {
          sums[channel + i] = dweight[group].at[i];
          sums[g.channels + channel + i] = dbias[group].at[i];
        }
      }
    }
  }
}

// Adds up the sums of the blocks. Each warp takes every kSumWarps-th of them, for kWarp sums.
constexpr int kSumWarps = 32;

__global__ void __launch_bounds__(kSumWarps* kWarp)
    SumBlocksKernel(const float* partial, int64_t blocks, int64_t channels, bool adds,
                    float* dweight, float* dbias) {
  __shared__ float shared[kSumWarps][kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kWarp + lane;
  float sum = 0;
  if (index < 2 * channels) {
#pragma unroll 8
    for (int64_t block = warp; block < blocks; block += kSumWarps) {
      sum += partial[block * 2 * channels + index];
    }
  }
  shared[warp][lane] = sum;
  __syncthreads();
  if (warp > 0 || index >= 2 * channels) {
    return;
  }
  for (int i = 1; i < kSumWarps; ++i) {
    sum += shared[i][lane];
  }
  float* const target = index < channels ? dweight + index : dbias + index - channels;
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
  return GradientBlocks(count, channels) * 2 * channels * int64_t{sizeof(float)};
}

void LayerNormGradient(View dy, View x, const float* weight, const float* mean,
                       const float* inverse, View addend, View dx, float* dweight, float* dbias,
                       bool adds, int64_t count, int64_t channels, void* workspace,
                       cudaStream_t stream) {
  if (count == 0) {
    return;
  }
  const Gradient gradient = {Input(dy),
                             Input(x),
                             Input(addend),
                             Output(dx, channels, true),
                             Parameter(weight, channels),
                             mean,
                             inverse,
                             count,
                             channels};
  const int64_t blocks = GradientBlocks(count, channels);
  auto* partial = static_cast<float*>(workspace);
  WithTypeOf(
      [&](auto* type) {
        using T = std::remove_pointer_t<decltype(type)>;
        const auto launch = [&](auto* kernel, int threads) {
          Launch(kernel, dim3(static_cast<unsigned>(blocks)), dim3(static_cast<unsigned>(threads)),
                 0, stream, gradient, partial);
        };
        if (channels <= kWarpGradientChannels) {
          launch(GradientKernel<T, kThreads, kWarp, 1>, kThreads);
        } else if (channels <= kBlockChannels) {
          launch(GradientKernel<T, kBlockThreads, kBlockThreads, 1>, kBlockThreads);
        } else {
          launch(GradientKernel<T, kThreads, kThreads, kHeldGroups>, kThreads);
        }
      },
      dy, x, addend, dx);
  Launch(SumBlocksKernel, dim3(Blocks(2 * channels, kWarp)), dim3(kSumWarps * kWarp), 0, stream,
         static_cast<const float*>(partial), blocks, channels, adds, dweight, dbias);
}

}  // namespace trainyard::engine::cuda
