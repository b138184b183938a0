// Sums over the pixels of each channel, which gives the gradients of biases.
#include <algorithm>
#include <type_traits>

#include "worker/engine/backend/cuda/kernels/device.h"
#include "worker/engine/backend/cuda/kernels/elementwise.h"
#include "worker/engine/backend/cuda/kernels/lanes.h"
#include "worker/engine/backend/cuda/kernels/tiles.h"
#include "worker/engine/backend/cuda/kernels/unpacking.h"

namespace trainyard::engine::cuda {
namespace {

struct SumArguments {
  int64_t pixels = 0;
  int64_t channels = 0;
  bool adds = false;
  float* sums = nullptr;
  float* partials = nullptr;  // [tiles, channels rounded up to eights]
  uint32_t* tickets = nullptr;
};

// Computes the sums of the tiles. The last block of a block of channels adds them up. Blocks of a
// second layer of the grid unpack `other`.
template <class T>
__global__ void __launch_bounds__(kTileThreads, kTileBlocksPerMultiprocessor)
    ColumnSumKernel(Tile tile, Operand x, SumArguments a, PackedGradient other) {
  if (blockIdx.z == 1) {
    const int64_t chunk = static_cast<int64_t>(blockIdx.y) * gridDim.x + blockIdx.x;
    if (chunk * kPackChunk < other.count) {
      UnpackChunk<kTileThreads>(other, chunk);
    }
    return;
  }
  if (blockIdx.y >= static_cast<unsigned>(tile.tiles)) {
    return;
  }
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
  if (!SumOverTiles<kTileThreads, 1>(tile, place, a.channels, sums, a.partials, a.tickets,
                                     shared) ||
      place.row != 0) {
    return;
  }
#pragma unroll
  for (int i = 0; i < kLanes; ++i) {
    if (i < place.count) {
      float* at = a.sums + place.channel + i;
      *at = a.adds ? *at + sums[i] : sums[i];
    }
  }
}

// With so few pixels, adding up further blocks costs more than they would save.
constexpr int64_t kOneTilePixels = 1024;

Tile PlanColumnSum(int64_t pixels, int64_t channels) {
  return PlanTile(pixels, channels, kTileColumns, kTileThreads, pixels <= kOneTilePixels);
}

}  // namespace

int64_t ColumnSumWorkspace(int64_t pixels, int64_t channels) {
  const Tile tile = PlanColumnSum(pixels, channels);
  return tile.tiles * LaneGroups(channels) * kLanes * static_cast<int64_t>(sizeof(float));
}

void ColumnSum(View x, int64_t pixels, int64_t channels, bool adds, float* sums, void* workspace,
               uint32_t* tickets, const PackedGradient& other, cudaStream_t stream) {
  const Tile tile = PlanColumnSum(pixels, channels);
  const SumArguments arguments = {pixels, channels, adds, sums, static_cast<float*>(workspace),
                                  tickets};
  dim3 grid = GridOf(tile);
  if (other.count > 0) {
    const int64_t layers = (other.chunks() + tile.channel_blocks - 1) / tile.channel_blocks;
    grid.y = static_cast<unsigned>(std::max<int64_t>(tile.tiles, layers));
    grid.z = 2;
  }
  WithVectorType(
      [&](auto* type) {
        using T = std::remove_pointer_t<decltype(type)>;
        Launch(ColumnSumKernel<T>, grid, dim3(kTileThreads), 0, stream, tile, Input(x), arguments,
               other);
      },
      channels, x);
}

}  // namespace trainyard::engine::cuda
