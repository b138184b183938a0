// Computes the gradient of batch_norm (Ioffe & Szegedy 2015, section 3), and what is fused into it.
// The first pass computes the sums and, if it is needed, writes the gradient of the residual. The
// second pass then reads that instead of everything from which it was made.
#include "worker/engine/backend/cuda/kernels/device.h"
#include "worker/engine/backend/cuda/kernels/lanes.h"
#include "worker/engine/backend/cuda/kernels/norm.h"
#include "worker/engine/backend/cuda/kernels/norm_device.h"
#include "worker/engine/backend/cuda/kernels/reduce.h"
#include "worker/engine/backend/cuda/kernels/tiles.h"

namespace trainyard::engine::cuda {
namespace {

// The operands of d, which is dy + second, and zero where the output was not positive.
struct GradientSource {
  Operand dy;
  Operand second;
  const uint8_t* mask = nullptr;  // eight channels a byte
  int64_t mask_stride = 0;
  const float* bias = nullptr;  // the output's sign is computed again from it; null if it is not
};

struct BackwardArguments {
  GradientSource source;
  Operand x;
  const float* weight = nullptr;
  const float* mean = nullptr;  // of all groups; kernels go on to those of their own
  const float* variance = nullptr;
  float eps = 0;
  int64_t pixels = 0;
  int64_t channels = 0;
  NormGroups groups;
  Tile tile;
};

struct SumArguments {
  Operand residual_gradient;
  float* dweight = nullptr;
  float* dbias = nullptr;
  bool adds = false;
  // The sums of only this batch: dbias, then dweight, rounded up to multiples of eight, for each
  // group.
  float* totals = nullptr;
  float* partials = nullptr;
  uint32_t* tickets = nullptr;
};

struct InputArguments {
  GradientSource source;  // of d in the second pass
  Operand addend;
  Operand dx;
  RowCount all;  // of the pixels over which the sums were taken, if they are more than these
  // The second pass writes the sums here, or adds them, if something else than the first pass has
  // taken them; null otherwise.
  float* dweight = nullptr;
  float* dbias = nullptr;
  bool adds = false;
};

// The factors of a thread's channels.
struct ChannelFactors {
  Float8 mean;
  Float8 scale;
  Float8 bias;  // read if the sign is computed again
};

__device__ ChannelFactors FactorsOf(const BackwardArguments& a, const TilePlace& place,
                                    const float* bias) {
  ChannelFactors factors = {LoadChannels(a.mean, place), LoadChannels(a.weight, place), {}};
  if (bias != nullptr) {
    factors.bias = LoadChannels(bias, place);
  }
  const Float8 variance = LoadChannels(a.variance, place);
#pragma unroll
  for (int i = 0; i < kLanes; ++i) {
    factors.scale.at[i] = NormScale(factors.scale.at[i], variance.at[i], a.eps);
  }
  return factors;
}

// The values that are loaded for a pixel.
template <class T>
struct Loaded {
  Lanes<T> dy;
  Lanes<T> second;
  Lanes<T> x;
  unsigned mask;
};

template <class T>
__device__ Loaded<T> Load(const GradientSource& source, const Operand& x, const TilePlace& place,
                          int64_t pixel) {
  Loaded<T> loaded;
  loaded.dy = LoadLanes<T, kIsVector<T>>(source.dy, pixel, place.channel, place.count);
  loaded.x = LoadLanes<T, kIsVector<T>>(x, pixel, place.channel, place.count);
  if (source.second) {
    loaded.second = LoadLanes<T, kIsVector<T>>(source.second, pixel, place.channel, place.count);
  }
  loaded.mask = 0xffU;
  if (source.mask != nullptr) {
    loaded.mask = source.mask[pixel * source.mask_stride + place.channel / kLanes];
  }
  return loaded;
}

// Computes d; `centred` becomes x - mean.
template <class T>
__device__ Float8 GradientOf(const GradientSource& source, const ChannelFactors& factors,
                             const Loaded<T>& loaded, Float8& centred) {
  Float8 d = Unpack(loaded.dy);
  const Float8 x = Unpack(loaded.x);
  if (source.second) {
    const Float8 second = Unpack(loaded.second);
#pragma unroll
    for (int i = 0; i < kLanes; ++i) {
      d.at[i] += second.at[i];
    }
  }
#pragma unroll
  for (int i = 0; i < kLanes; ++i) {
    centred.at[i] = x.at[i] - factors.mean.at[i];
    bool is_positive = (loaded.mask >> i & 1U) != 0;
    if (source.bias != nullptr) {
      is_positive =
          Normalized(x.at[i], factors.mean.at[i], factors.scale.at[i], factors.bias.at[i]) > 0;
    }
    d.at[i] = is_positive ? d.at[i] : 0.0F;
  }
  return d;
}

// Computes the sums of d and of d (x - mean) over a thread's pixels, which end at `end`, in [0, 8)
// and [8, 16) of `sums`.
template <class T>
__device__ void SumUp(const BackwardArguments& a, const TilePlace& place, int64_t end,
                      const Operand& residual_gradient, float (&sums)[2 * kLanes]) {
  constexpr int kUnroll = kIsVector<T> ? 2 : 1;
  const ChannelFactors factors = FactorsOf(a, place, a.source.bias);
  for (int64_t first = place.pixel; first < end; first += kUnroll * place.step) {
    Loaded<T> loaded[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (first + u * place.step < end) {
        loaded[u] = Load<T>(a.source, a.x, place, first + u * place.step);
      }
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int64_t pixel = first + u * place.step;
      if (pixel < end) {
        Float8 centred;
        const Float8 d = GradientOf(a.source, factors, loaded[u], centred);
        if (residual_gradient) {
          StoreLanes<T, kIsVector<T>>(residual_gradient, pixel, place.channel, place.count, d);
        }
#pragma unroll
        for (int i = 0; i < kLanes; ++i) {
          sums[i] += d.at[i];
          sums[kLanes + i] = fmaf(d.at[i], centred.at[i], sums[kLanes + i]);
        }
      }
    }
  }
}

// Computes dx of a thread's pixels, which end where those of the group do, from the sums of d and
// of d h over all pixels.
template <class T>
__device__ void ApplyInput(const BackwardArguments& a, const InputArguments& to,
                           const TilePlace& place, const PixelRange& pixels, const Float8& dbias,
                           const Float8& dweight) {
  // Four operands of f32 are as many bytes in flight, and as many registers, as eight of 16 bits.
  constexpr int kUnroll = kIsVector<T> && sizeof(T) == 2 ? 2 : 1;
  const ChannelFactors factors = FactorsOf(a, place, to.source.bias);
  // dx = scale d + slope (x - mean) + constant. The scale is that of the sign, since registers are
  // few.
  Float8 slope = LoadChannels(a.variance, place);
  Float8 constant;
  float count = static_cast<float>(pixels.size());
  if (to.all.rows != nullptr) {
    count = static_cast<float>(static_cast<int64_t>(*to.all.rows) * to.all.plane);
  }
#pragma unroll
  for (int i = 0; i < kLanes; ++i) {
    const float inverse = 1 / sqrtf(slope.at[i] + a.eps);
    slope.at[i] = -factors.scale.at[i] * inverse * (dweight.at[i] / count);
    constant.at[i] = -factors.scale.at[i] * (dbias.at[i] / count);
  }
  for (int64_t first = place.pixel; first < pixels.end; first += kUnroll * place.step) {
    Loaded<T> loaded[kUnroll];
    Lanes<T> addend[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int64_t pixel = first + u * place.step;
      if (pixel < pixels.end) {
        loaded[u] = Load<T>(to.source, a.x, place, pixel);
        if (to.addend) {
          addend[u] = LoadLanes<T, kIsVector<T>>(to.addend, pixel, place.channel, place.count);
        }
      }
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int64_t pixel = first + u * place.step;
      if (pixel < pixels.end) {
        Float8 centred;
        Float8 dx = GradientOf(to.source, factors, loaded[u], centred);
        const Float8 added = to.addend ? Unpack(addend[u]) : Float8{};
#pragma unroll
        for (int i = 0; i < kLanes; ++i) {
          dx.at[i] = fmaf(factors.scale.at[i], dx.at[i],
                          fmaf(slope.at[i], centred.at[i], constant.at[i])) +
                     added.at[i];
        }
        StoreLanes<T, kIsVector<T>>(to.dx, pixel, place.channel, place.count, dx);
      }
    }
  }
}

// Adds the sums of all groups, in their order, to dbias and dweight of a thread's channels.
__device__ void AddGroups(const BackwardArguments& a, const SumArguments& to,
                          const TilePlace& place) {
  const int64_t padded_channels = LaneGroups(a.channels) * kLanes;
  for (int64_t group = 0; group < a.groups.count; ++group) {
    const float* of_group = to.totals + group * 2 * padded_channels + place.channel;
    const bool adds = to.adds || group > 0;
    for (int i = 0; i < place.count; ++i) {
      AddOrWrite(to.dbias + place.channel + i, of_group[i], adds);
      AddOrWrite(to.dweight + place.channel + i, of_group[padded_channels + i], adds);
    }
  }
}

// Computes dbias and dweight. If it is the only launch, it also computes dx.
template <class T, bool kIsOneLaunch>
__global__ void __launch_bounds__(NormThreads(kIsOneLaunch),
                                  kIsOneLaunch ? 1 : kTileBlocksPerMultiprocessor)
    SumKernel(BackwardArguments a, SumArguments to, InputArguments input) {
  constexpr int kThreads = NormThreads(kIsOneLaunch);
  __shared__ float shared[TileShared(2 * kLanes, kThreads)];
  const PixelRange pixels = PixelsOf(a.groups, blockIdx.z, a.pixels);
  const TilePlace place = PlaceIn(a.tile, a.channels, pixels.begin);
  a.mean += blockIdx.z * a.channels;
  a.variance += blockIdx.z * a.channels;
  float sums[2 * kLanes] = {};
  if (place.count > 0) {
    SumUp<T>(a, place, pixels.end, to.residual_gradient, sums);
  }
  SumOverRows<kThreads>(a.tile, place, sums, shared);
  if (!SumOverTiles<kThreads, 2>(a.tile, place, a.channels, sums, to.partials, to.tickets,
                                 shared)) {
    return;
  }
  if (place.row == 0) {
    const Float8 variance = LoadChannels(a.variance, place);
    const int64_t padded_channels = LaneGroups(a.channels) * kLanes;
    float* totals = to.totals + blockIdx.z * 2 * padded_channels + place.channel;
#pragma unroll
    for (int i = 0; i < kLanes; ++i) {
      sums[kLanes + i] *= 1 / sqrtf(variance.at[i] + a.eps);
      if (i < place.count) {
        totals[i] = sums[i];
        totals[padded_channels + i] = sums[kLanes + i];
      }
    }
  }
  if (IsLastGroup(to.tickets) && place.row == 0) {
    AddGroups(a, to, place);
  }
  if constexpr (kIsOneLaunch) {
    float* of_column = shared + place.column * 2 * kLanes;
    if (place.row == 0) {
#pragma unroll
      for (int i = 0; i < 2 * kLanes; ++i) {
        of_column[i] = sums[i];
      }
    }
    __syncthreads();
    if (input.dx && place.count > 0) {
      Float8 dbias;
      Float8 dweight;
#pragma unroll
      for (int i = 0; i < kLanes; ++i) {
        dbias.at[i] = of_column[i];
        dweight.at[i] = of_column[kLanes + i];
      }
      ApplyInput<T>(a, input, place, pixels, dbias, dweight);
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kTileThreads, kTileBlocksPerMultiprocessor)
    InputKernel(BackwardArguments a, InputArguments to, const float* totals) {
  const PixelRange pixels = PixelsOf(a.groups, blockIdx.z, a.pixels);
  const TilePlace place = PlaceIn(a.tile, a.channels, pixels.begin);
  const int64_t padded_channels = LaneGroups(a.channels) * kLanes;
  a.mean += blockIdx.z * a.channels;
  a.variance += blockIdx.z * a.channels;
  totals += blockIdx.z * 2 * padded_channels;
  if (to.dweight != nullptr && place.pixel == pixels.begin) {
    for (int i = 0; i < place.count; ++i) {
      const int64_t channel = place.channel + i;
      AddOrWrite(to.dbias + channel, totals[channel], to.adds);
      AddOrWrite(to.dweight + channel, totals[padded_channels + channel], to.adds);
    }
  }
  if (place.count > 0) {
    ApplyInput<T>(a, to, place, pixels, LoadChannels(totals, place),
                  LoadChannels(totals + padded_channels, place));
  }
}

__global__ void OperandsKernel(BackwardArguments a, const float* bias, int64_t stride,
                               float* operands) {
  const int64_t channel = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (channel >= stride) {
    return;
  }
  const bool is_padding = channel >= a.channels;
  operands[channel] = is_padding ? 0 : a.mean[channel];
  operands[stride + channel] = is_padding ? 0 : 1 / sqrtf(a.variance[channel] + a.eps);
  operands[2 * stride + channel] = is_padding ? 0 : a.weight[channel];
  operands[3 * stride + channel] = is_padding ? 0 : bias[channel];
}

GradientSource SourceOf(const NormGradient& norm) {
  return {Input(norm.dy), Input(norm.second_gradient), reinterpret_cast<const uint8_t*>(norm.mask),
          MaskWords(norm.channels) * static_cast<int64_t>(sizeof(uint32_t)),
          norm.relu && norm.mask == nullptr ? norm.bias : nullptr};
}

BackwardArguments ArgumentsOf(const NormGradient& norm, const Tile& tile) {
  return {SourceOf(norm), Input(norm.x), norm.weight,   norm.mean,   norm.variance,
          norm.eps,       norm.pixels,   norm.channels, norm.groups, tile};
}

SumArguments SumsOf(const NormGradient& norm, void* workspace, uint32_t* tickets) {
  float* totals = static_cast<float*>(workspace);
  return {Output(norm.residual_gradient, norm.channels, norm.clears_padding),
          norm.dweight,
          norm.dbias,
          norm.adds,
          totals,
          totals + norm.groups.count * 2 * NormSumsStride(norm.channels),
          tickets};
}

InputArguments InputOf(const NormGradient& norm, const RowCount& all) {
  const GradientSource source = norm.residual_gradient
                                    ? GradientSource{Input(norm.residual_gradient), Operand()}
                                    : SourceOf(norm);
  return {source,
          Input(norm.addend),
          Output(norm.dx, norm.channels, norm.clears_padding),
          all,
          nullptr,
          nullptr,
          false};
}

// Calls launch(null pointer of the type), with a vector type if all operands are vectors.
template <class Body>
void WithTypeOf(const NormGradient& norm, const Body& launch) {
  WithVectorType(launch, norm.channels, norm.x, norm.dy, norm.second_gradient, norm.addend, norm.dx,
                 norm.residual_gradient);
}

// Launches the second pass, by sums that were taken before.
void LaunchInput(const NormGradient& norm, const InputArguments& arguments, const float* totals,
                 cudaStream_t stream) {
  const Tile tile = PlanParts(norm.pixels, norm.channels, norm.groups.count);
  WithTypeOf(norm, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    Launch(InputKernel<T>, GridOf(tile), dim3(kTileThreads), 0, stream, ArgumentsOf(norm, tile),
           arguments, totals);
  });
}

}  // namespace

int64_t NormSumsStride(int64_t channels) {
  return LaneGroups(channels) * kLanes;
}

void NormBackward(const NormGradient& norm, void* workspace, uint32_t* tickets,
                  cudaStream_t stream) {
  if (!TakesOneLaunch(UsualPixels(norm.pixels, norm.groups.count))) {
    NormBackwardSums(norm, workspace, tickets, stream);
    if (norm.dx) {
      NormBackwardInput(norm, workspace, {}, stream);
    }
    return;
  }
  const Tile tile = PlanNorm(norm.pixels, norm.channels, norm.x.type, norm.groups.count);
  WithTypeOf(norm, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    Launch(SumKernel<T, true>, GridOf(tile), dim3(static_cast<unsigned>(NormThreads(true))), 0,
           stream, ArgumentsOf(norm, tile), SumsOf(norm, workspace, tickets), InputOf(norm, {}));
  });
}

void NormBackwardSums(const NormGradient& norm, void* workspace, uint32_t* tickets,
                      cudaStream_t stream) {
  const Tile tile = PlanParts(norm.pixels, norm.channels, norm.groups.count);
  WithTypeOf(norm, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    Launch(SumKernel<T, false>, GridOf(tile), dim3(kTileThreads), 0, stream,
           ArgumentsOf(norm, tile), SumsOf(norm, workspace, tickets), InputArguments{});
  });
}

void NormBackwardInput(const NormGradient& norm, const void* workspace, const RowCount& all,
                       cudaStream_t stream) {
  LaunchInput(norm, InputOf(norm, all), static_cast<const float*>(workspace), stream);
}

void NormBackwardOfSums(const NormGradient& norm, const float* sums, cudaStream_t stream) {
  InputArguments arguments = InputOf(norm, {});
  arguments.dweight = norm.dweight;
  arguments.dbias = norm.dbias;
  arguments.adds = norm.adds;
  LaunchInput(norm, arguments, sums, stream);
}

void NormPackOperands(const NormGradient& norm, float* operands, cudaStream_t stream) {
  const int64_t stride = NormSumsStride(norm.channels);
  const auto blocks = static_cast<unsigned>((stride + kTileThreads - 1) / kTileThreads);
  Launch(OperandsKernel, dim3(blocks), dim3(kTileThreads), 0, stream, ArgumentsOf(norm, {}),
         norm.bias, stride, operands);
}

}  // namespace trainyard::engine::cuda
