// Sums over the pixels of each channel, which gives the gradients of biases.
#include <type_traits>

#include "worker/engine/backend/cuda/kernels/device.h"
#include "worker/engine/backend/cuda/kernels/elementwise.h"
#include "worker/engine/backend/cuda/kernels/lanes.h"
#include "worker/engine/backend/cuda/kernels/tiles.h"

namespace trainyard::engine::cuda {
namespace {

struct SumArguments {
  int64_t pixels = 0;
  int64_t channels = 0;
  bool adds = false;
  float* sums = nullptr;
  float* partials = nullptr;  // [tiles, channels rounded up to eights]
};

// Computes the sums of a tile, or the final sums if there is only one tile.
template <class T>
__global__ void __launch_bounds__(kTileThreads, kTileBlocksPerMultiprocessor)
    ColumnSumKernel(Tile tile, Operand x, SumArguments a) {
  constexpr int kUnroll = 4;
  __shared__ float shared[TileShared(kLanes, kTileThreads)];
  const TilePlace place = PlaceIn(tile, a.channels);
  float sums[kLanes] = {};
  if (place.count > 0) {
    for (int64_t first = place.pixel; first < a.pixels; first += kUnroll * place.step) {
      Lanes<T> lanes[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        if (first + u * place.step < a.pixels) {
          lanes[u] =
              LoadLanes<T, kIsVector<T>>(x, first + u * place.step, place.channel, place.count);
        }
      }
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        if (first + u * place.step < a.pixels) {
          const Float8 values = Unpack(lanes[u]);
#pragma unroll
          for (int i = 0; i < kLanes; ++i) {
            sums[i] += values.at[i];
          }
        }
      }
    }
  }
  SumOverRows<kTileThreads>(tile, place, sums, shared);
  if (place.row != 0) {
    return;
  }
  float* to = a.sums;
  if (tile.tiles > 1) {
    to = a.partials + blockIdx.y * LaneGroups(a.channels) * kLanes;
  }
#pragma unroll
  for (int i = 0; i < kLanes; ++i) {
    if (i < place.count) {
      float* at = to + place.channel + i;
      *at = a.adds && tile.tiles == 1 ? *at + sums[i] : sums[i];
    }
  }
}

// Adds up the tiles. A warp has one channel.
__global__ void __launch_bounds__(kTileThreads) SumTilesKernel(int tiles, SumArguments a) {
  const int64_t channel =
      static_cast<int64_t>(blockIdx.x) * (kTileThreads / kWarp) + threadIdx.x / kWarp;
  if (channel >= a.channels) {
    return;
  }
  float sum = 0;
  for (int t = static_cast<int>(threadIdx.x % kWarp); t < tiles; t += kWarp) {
    sum += a.partials[t * (LaneGroups(a.channels) * kLanes) + channel];
  }
  sum = WarpSum(sum);
  if (threadIdx.x % kWarp == 0) {
    a.sums[channel] = a.adds ? a.sums[channel] + sum : sum;
  }
}

// With so few pixels, a second launch costs more than further blocks would save.
constexpr int64_t kOneTilePixels = 1024;

Tile PlanColumnSum(int64_t pixels, int64_t channels) {
  return PlanTile(pixels, channels, kTileColumns, kTileThreads, pixels <= kOneTilePixels);
}

}  // namespace

int64_t ColumnSumWorkspace(int64_t pixels, int64_t channels) {
  const Tile tile = PlanColumnSum(pixels, channels);
  return tile.tiles * LaneGroups(channels) * kLanes * static_cast<int64_t>(sizeof(float));
}

int64_t ColumnSumKernels(int64_t pixels, int64_t channels) {
  return PlanColumnSum(pixels, channels).tiles > 1 ? 2 : 1;
}

void ColumnSum(View x, int64_t pixels, int64_t channels, bool adds, float* sums, void* workspace,
               cudaStream_t stream) {
  const Tile tile = PlanColumnSum(pixels, channels);
  const SumArguments arguments = {pixels, channels, adds, sums, static_cast<float*>(workspace)};
  WithVectorType(
      [&](auto* type) {
        using T = std::remove_pointer_t<decltype(type)>;
        Launch(ColumnSumKernel<T>, GridOf(tile), dim3(kTileThreads), 0, stream, tile, Input(x),
               arguments);
      },
      channels, x);
  if (tile.tiles > 1) {
    constexpr int64_t kPerBlock = kTileThreads / kWarp;
    Launch(SumTilesKernel, dim3(static_cast<unsigned>((channels + kPerBlock - 1) / kPerBlock)),
           dim3(kTileThreads), 0, stream, tile.tiles, arguments);
  }
}

}  // namespace trainyard::engine::cuda
