// Computes batch_norm forward. Sums are taken over the difference of each channel from its first
// pixel, so that a mean far from zero costs the variance no bits.
#include <algorithm>

#include "worker/engine/backend/cuda/kernels/device.h"
#include "worker/engine/backend/cuda/kernels/lanes.h"
#include "worker/engine/backend/cuda/kernels/norm.h"
#include "worker/engine/backend/cuda/kernels/norm_device.h"
#include "worker/engine/backend/cuda/kernels/reduce.h"
#include "worker/engine/backend/cuda/kernels/tiles.h"

namespace trainyard::engine::cuda {
namespace {

struct ForwardArguments {
  Operand x;
  Operand y;
  Operand scale;
  Operand shift;
  Operand residual;
  uint8_t* mask = nullptr;  // eight channels a byte
  int64_t mask_stride = 0;
  const float* weight = nullptr;
  const float* bias = nullptr;
  float eps = 0;
  bool relu = false;
  int64_t pixels = 0;
  int64_t channels = 0;
  NormGroups groups;
  Tile tile;
};

struct StatisticArguments {
  float* mean = nullptr;
  float* variance = nullptr;
  StatisticSums sums;
  float* partials = nullptr;
  uint32_t* tickets = nullptr;
};

// Stores the bits of the values that are positive, eight in a byte. The last group clears the rest
// of its word.
__device__ void StoreMask(const ForwardArguments& a, const TilePlace& place, int64_t pixel,
                          const Float8& values) {
  unsigned bits = 0;
#pragma unroll
  for (int i = 0; i < kLanes; ++i) {
    bits |= i < place.count && values.at[i] > 0 ? 1U << i : 0U;
  }
  uint8_t* row = a.mask + pixel * a.mask_stride;
  const int64_t at = place.channel / kLanes;
  row[at] = static_cast<uint8_t>(bits);
  if (place.channel + kLanes >= a.channels) {
    for (int64_t i = at + 1; i < a.mask_stride; ++i) {
      row[i] = 0;
    }
  }
}

// Writes the scale and shift of a thread's channels, for readers that compute y themselves.
__device__ void StoreCoefficients(const ForwardArguments& a, const TilePlace& place,
                                  const Float8& mean, const Float8& variance) {
  Float8 scale = LoadChannels(a.weight, place);
  Float8 shift = LoadChannels(a.bias, place);
#pragma unroll
  for (int i = 0; i < kLanes; ++i) {
    scale.at[i] = NormScale(scale.at[i], variance.at[i], a.eps);
    shift.at[i] = fmaf(-mean.at[i], scale.at[i], shift.at[i]);
  }
  StoreLanes<MixedTypes>(a.scale, 0, place.channel, place.count, scale);
  StoreLanes<MixedTypes>(a.shift, 0, place.channel, place.count, shift);
}

// Computes y of a thread's pixels, which end at `end`.
template <class T>
__device__ void Apply(const ForwardArguments& a, const TilePlace& place, int64_t end,
                      const Float8& mean, const Float8& variance) {
  constexpr int kUnroll = kIsVector<T> ? 2 : 1;
  const Float8 bias = LoadChannels(a.bias, place);
  Float8 scale = LoadChannels(a.weight, place);
#pragma unroll
  for (int i = 0; i < kLanes; ++i) {
    scale.at[i] = NormScale(scale.at[i], variance.at[i], a.eps);
  }
  for (int64_t first = place.pixel; first < end; first += kUnroll * place.step) {
    Lanes<T> x[kUnroll];
    Lanes<T> residual[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int64_t pixel = first + u * place.step;
      if (pixel < end) {
        x[u] = LoadLanes<T, kIsVector<T>>(a.x, pixel, place.channel, place.count);
        if (a.residual) {
          residual[u] = LoadLanes<T, kIsVector<T>>(a.residual, pixel, place.channel, place.count);
        }
      }
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int64_t pixel = first + u * place.step;
      if (pixel < end) {
        Float8 y = Unpack(x[u]);
        const Float8 added = a.residual ? Unpack(residual[u]) : Float8{};
#pragma unroll
        for (int i = 0; i < kLanes; ++i) {
          y.at[i] = Normalized(y.at[i], mean.at[i], scale.at[i], bias.at[i]) + added.at[i];
        }
        if (a.mask != nullptr) {
          StoreMask(a, place, pixel, y);
        }
#pragma unroll
        for (int i = 0; i < kLanes; ++i) {
          y.at[i] = a.relu && y.at[i] < 0 ? 0.0F : y.at[i];
        }
        StoreLanes<T, kIsVector<T>>(a.y, pixel, place.channel, place.count, y);
      }
    }
  }
}

// Computes the sums of x - pivot and of its square over a thread's pixels, which end at `end`, in
// [0, 8) and [8, 16) of `sums`.
template <class T>
__device__ void SumUp(const ForwardArguments& a, const TilePlace& place, int64_t end,
                      const Float8& pivot, float (&sums)[2 * kLanes]) {
  constexpr int kUnroll = kIsVector<T> ? 4 : 1;
  for (int64_t first = place.pixel; first < end; first += kUnroll * place.step) {
    Lanes<T> x[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int64_t pixel = first + u * place.step;
      if (pixel < end) {
        x[u] = LoadLanes<T, kIsVector<T>>(a.x, pixel, place.channel, place.count);
      }
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (first + u * place.step < end) {
        const Float8 values = Unpack(x[u]);
#pragma unroll
        for (int i = 0; i < kLanes; ++i) {
          const float difference = values.at[i] - pivot.at[i];
          sums[i] += difference;
          sums[kLanes + i] = fmaf(difference, difference, sums[kLanes + i]);
        }
      }
    }
  }
}

// Adds the statistics of all groups, in their order, to the sums of `count` channels.
__device__ void AddGroups(const NormGroups& groups, int64_t pixels, int64_t channels,
                          const float* mean, const float* variance, StatisticSums sums,
                          int64_t channel, int count) {
  for (int64_t group = 0; group < groups.count; ++group) {
    const int64_t of_group = PixelsOf(groups, group, pixels).size();
    const auto share =
        static_cast<float>(static_cast<double>(of_group) / static_cast<double>(pixels));
    const int64_t first = group * channels + channel;
    for (int i = 0; i < count; ++i) {
      WriteStatistics(sums, channel + i, of_group, mean[first + i], variance[first + i], share);
    }
    sums.adds = true;
  }
}

// Computes mean and variance. If it is the only launch, it also computes y.
template <class T, bool kIsOneLaunch>
__global__ void __launch_bounds__(NormThreads(kIsOneLaunch),
                                  kIsOneLaunch ? 1 : kTileBlocksPerMultiprocessor)
    StatisticsKernel(ForwardArguments a, StatisticArguments to) {
  constexpr int kThreads = NormThreads(kIsOneLaunch);
  __shared__ float shared[TileShared(2 * kLanes, kThreads)];
  const PixelRange pixels = PixelsOf(a.groups, blockIdx.z, a.pixels);
  const TilePlace place = PlaceIn(a.tile, a.channels, pixels.begin);
  float sums[2 * kLanes] = {};
  Float8 pivot = {};
  if (place.count > 0) {
    pivot = Unpack(LoadLanes<T, kIsVector<T>>(a.x, pixels.begin, place.channel, place.count));
    SumUp<T>(a, place, pixels.end, pivot, sums);
  }
  SumOverRows<kThreads>(a.tile, place, sums, shared);
  if (!SumOverTiles<kThreads, 2>(a.tile, place, a.channels, sums, to.partials, to.tickets,
                                 shared)) {
    return;
  }
  Float8 mean = {};
  Float8 variance = {};
  if (place.row == 0) {
    const float count = static_cast<float>(pixels.size());
    const int64_t first = blockIdx.z * a.channels + place.channel;
#pragma unroll
    for (int i = 0; i < kLanes; ++i) {
      const float shift = sums[i] / count;
      const float spread = sums[kLanes + i] / count - shift * shift;
      mean.at[i] = pivot.at[i] + shift;
      variance.at[i] = spread < 0 ? 0.0F : spread;  // a NaN stays
      if (i < place.count) {
        to.mean[first + i] = mean.at[i];
        to.variance[first + i] = variance.at[i];
      }
    }
    if (a.scale && place.count > 0) {
      StoreCoefficients(a, place, mean, variance);
    }
  }
  if (to.sums.mean != nullptr && IsLastGroup(to.tickets) && place.row == 0) {
    AddGroups(a.groups, a.pixels, a.channels, to.mean, to.variance, to.sums, place.channel,
              place.count);
  }
  if constexpr (kIsOneLaunch) {
    float* of_column = shared + place.column * 2 * kLanes;
    if (place.row == 0) {
#pragma unroll
      for (int i = 0; i < kLanes; ++i) {
        of_column[i] = mean.at[i];
        of_column[kLanes + i] = variance.at[i];
      }
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kLanes; ++i) {
      mean.at[i] = of_column[i];
      variance.at[i] = of_column[kLanes + i];
    }
    if (place.count > 0) {
      Apply<T>(a, place, pixels.end, mean, variance);
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kTileThreads, kTileBlocksPerMultiprocessor)
    ApplyKernel(ForwardArguments a, const float* mean, const float* variance) {
  const PixelRange pixels = PixelsOf(a.groups, blockIdx.z, a.pixels);
  const TilePlace place = PlaceIn(a.tile, a.channels, pixels.begin);
  const int64_t of_group = blockIdx.z * a.channels;
  if (place.count > 0) {
    Apply<T>(a, place, pixels.end, LoadChannels(mean + of_group, place),
             LoadChannels(variance + of_group, place));
  }
}

__global__ void FinalizeKernel(const float* sum, const float* square_sum, ForwardArguments a,
                               StatisticArguments to) {
  const int64_t channel = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (channel >= a.channels) {
    if (channel < a.scale.written) {
      StoreElement(a.scale, 0, channel, 0);
      StoreElement(a.shift, 0, channel, 0);
    }
    return;
  }
  // This is computed in f64, so nothing is lost beyond the rounding of the sums.
  const double mean = static_cast<double>(sum[channel]) / static_cast<double>(a.pixels);
  const double square = static_cast<double>(square_sum[channel]) / static_cast<double>(a.pixels);
  const double spread = square - mean * mean;
  const float variance = static_cast<float>(spread < 0 ? 0.0 : spread);
  to.mean[channel] = static_cast<float>(mean);
  to.variance[channel] = variance;
  WriteStatistics(to.sums, channel, a.pixels, static_cast<float>(mean), variance);
  if (a.scale) {
    const float scale = NormScale(a.weight[channel], variance, a.eps);
    StoreElement(a.scale, 0, channel, scale);
    StoreElement(a.shift, 0, channel, fmaf(-static_cast<float>(mean), scale, a.bias[channel]));
  }
}

__global__ void SumStatisticsKernel(const float* mean, const float* variance, NormGroups groups,
                                    int64_t pixels, int64_t channels, StatisticSums sums) {
  const int64_t channel = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (channel < channels) {
    AddGroups(groups, pixels, channels, mean, variance, sums, channel, 1);
  }
}

unsigned BlocksOfChannels(int64_t channels) {
  return static_cast<unsigned>((channels + kTileThreads - 1) / kTileThreads);
}

ForwardArguments ArgumentsOf(const NormForward& norm, const Tile& tile) {
  return {Input(norm.x),
          Output(norm.y, norm.channels, norm.clears_padding),
          Output(norm.scale, norm.channels, /*clears_padding=*/true),
          Output(norm.shift, norm.channels, /*clears_padding=*/true),
          Input(norm.residual),
          reinterpret_cast<uint8_t*>(norm.mask),
          MaskWords(norm.channels) * static_cast<int64_t>(sizeof(uint32_t)),
          norm.weight,
          norm.bias,
          norm.eps,
          norm.relu,
          norm.pixels,
          norm.channels,
          norm.groups,
          tile};
}

// Launches what computes the statistics of a single group, but not y.
void LaunchStatistics(const NormForward& norm, const StatisticArguments& to, cudaStream_t stream) {
  const Tile tile = PlanParts(norm.pixels, norm.channels, /*groups=*/1);
  const ForwardArguments arguments = ArgumentsOf(norm, tile);
  WithVectorType(
      [&](auto* type) {
        using T = std::remove_pointer_t<decltype(type)>;
        Launch(StatisticsKernel<T, false>, GridOf(tile), dim3(kTileThreads), 0, stream, arguments,
               to);
      },
      norm.channels, norm.x);
}

}  // namespace

int64_t NormWorkspace(int64_t pixels, int64_t channels, int64_t groups_max) {
  // Each tile has two sums, and each group two totals. Several groups have, together, less tiles
  // than a single one has and one more for each: each rounds down its share of the same pixels and
  // of the same room, but has at least one.
  const Tile tile = PlanNorm(pixels, channels, Type::kF32, 1);
  const int64_t tiles = groups_max == 1 ? tile.tiles : tile.tiles + groups_max;
  return (tiles + groups_max) * 2 * LaneGroups(channels) * kLanes *
         static_cast<int64_t>(sizeof(float));
}

void NormApply(const NormForward& norm, const float* mean, const float* variance,
               cudaStream_t stream) {
  const int64_t groups = norm.groups.count;
  const Tile tile = PlanTile(UsualPixels(norm.pixels, groups), norm.channels, kTileColumns,
                             kTileThreads, false, groups);
  const ForwardArguments arguments = ArgumentsOf(norm, tile);
  WithVectorType(
      [&](auto* type) {
        using T = std::remove_pointer_t<decltype(type)>;
        Launch(ApplyKernel<T>, GridOf(tile), dim3(kTileThreads), 0, stream, arguments, mean,
               variance);
      },
      norm.channels, norm.x, norm.y, norm.residual);
}

int64_t NormKernels(int64_t pixels) {
  return TakesOneLaunch(pixels) ? 1 : 2;
}

void NormTraining(const NormForward& norm, float* mean, float* variance, const StatisticSums& sums,
                  void* workspace, uint32_t* tickets, cudaStream_t stream) {
  const StatisticArguments statistics = {mean, variance, sums, static_cast<float*>(workspace),
                                         tickets};
  if (norm.scale) {
    LaunchStatistics(norm, statistics, stream);
    return;
  }
  const int64_t groups = norm.groups.count;
  const bool is_one_launch = TakesOneLaunch(UsualPixels(norm.pixels, groups));
  const Tile tile = PlanNorm(norm.pixels, norm.channels, norm.x.type, groups);
  const ForwardArguments arguments = ArgumentsOf(norm, tile);
  WithVectorType(
      [&](auto* type) {
        using T = std::remove_pointer_t<decltype(type)>;
        Launch(is_one_launch ? StatisticsKernel<T, true> : StatisticsKernel<T, false>, GridOf(tile),
               dim3(static_cast<unsigned>(NormThreads(is_one_launch))), 0, stream, arguments,
               statistics);
      },
      norm.channels, norm.x, norm.y, norm.residual);
  if (!is_one_launch) {
    NormApply(norm, mean, variance, stream);
  }
}

void NormStatistics(const NormForward& norm, float* mean, float* variance, void* workspace,
                    uint32_t* tickets, cudaStream_t stream) {
  NormForward input;
  input.x = norm.x;
  input.pixels = norm.pixels;
  input.channels = norm.channels;
  LaunchStatistics(input, {mean, variance, {}, static_cast<float*>(workspace), tickets}, stream);
}

void NormSumStatistics(const float* mean, const float* variance, const NormGroups& groups,
                       int64_t pixels, int64_t channels, const StatisticSums& sums,
                       cudaStream_t stream) {
  Launch(SumStatisticsKernel, dim3(BlocksOfChannels(channels)), dim3(kTileThreads), 0, stream, mean,
         variance, groups, pixels, channels, sums);
}

void NormFinalize(const float* sum, const float* square_sum, const NormForward& norm, float* mean,
                  float* variance, const StatisticSums& sums, cudaStream_t stream) {
  const ForwardArguments arguments = ArgumentsOf(norm, {});
  const int64_t written = std::max(norm.channels, arguments.scale.written);
  Launch(FinalizeKernel, dim3(BlocksOfChannels(written)), dim3(kTileThreads), 0, stream, sum,
         square_sum, arguments, StatisticArguments{mean, variance, sums});
}

}  // namespace trainyard::engine::cuda
