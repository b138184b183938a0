// Computes averages over whole images. A block sums a row's pixels of some channels.
#include <algorithm>
#include <type_traits>

#include "worker/engine/backend/cuda/kernels/device.h"
#include "worker/engine/backend/cuda/kernels/lanes.h"
#include "worker/engine/backend/cuda/kernels/pool.h"
#include "worker/engine/backend/cuda/kernels/reduce.h"
#include "worker/engine/backend/cuda/kernels/tiles.h"

namespace trainyard::engine::cuda {
namespace {

// Computes y. A block has a row's pixels of up to kTileColumns groups.
template <class T>
__global__ void __launch_bounds__(kTileThreads)
    GlobalAverageKernel(Tile tile, Operand x, Operand y, int64_t plane, int64_t channels) {
  __shared__ float shared[TileShared(kLanes, kTileThreads)];
  const TilePlace place = PlaceIn(tile, channels);
  const int64_t row = blockIdx.y;
  float sums[kLanes] = {};
  if (place.count > 0) {
#pragma unroll 4
    for (int64_t pixel = place.row; pixel < plane; pixel += tile.rows) {
      const Float8 values =
          Unpack(LoadLanes<T>(x, row * plane + pixel, place.channel, place.count));
#pragma unroll
      for (int i = 0; i < kLanes; ++i) {
        sums[i] += values.at[i];
      }
    }
  }
  SumOverRows<kTileThreads>(tile, place, sums, shared);
  if (place.row == 0 && place.count > 0) {
    Float8 mean;
#pragma unroll
    for (int i = 0; i < kLanes; ++i) {
      mean.at[i] = sums[i] / static_cast<float>(plane);
    }
    StoreLanes<T>(y, row, place.channel, place.count, mean);
  }
}

template <class T>
__global__ void __launch_bounds__(kTileThreads)
    GlobalAverageGradientKernel(Operand dy, Operand dx, int64_t rows, int64_t plane,
                                int64_t channels) {
  const int64_t groups = LaneGroups(channels);
  const int64_t items = rows * plane * groups;
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t at = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; at < items;
       at += step) {
    const int64_t pixel = at / groups;
    const int64_t channel = (at - pixel * groups) * kLanes;
    const int count = LaneCount(channels, channel);
    Float8 values = Unpack(LoadLanes<T>(dy, pixel / plane, channel, count));
#pragma unroll
    for (int i = 0; i < kLanes; ++i) {
      values.at[i] /= static_cast<float>(plane);
    }
    StoreLanes<T>(dx, pixel, channel, count, values);
  }
}

View AdvanceRows(View view, int64_t rows, int64_t pixels_per_row) {
  view.data = static_cast<unsigned char*>(view.data) +
              rows * pixels_per_row * view.stride * SizeOf(view.type);
  return view;
}

}  // namespace

void GlobalAvgPoolForward(View x, View y, const ImageShape& in, bool clears_padding,
                          cudaStream_t stream) {
  const int64_t plane = in.height * in.width;
  const Tile tile = PlanTile(plane, in.channels, kTileColumns, kTileThreads, true);
  // A grid has at most this many blocks along y.
  constexpr int64_t kRowsMax = 65535;
  for (int64_t begin = 0; begin < in.rows; begin += kRowsMax) {
    const int64_t rows = std::min(kRowsMax, in.rows - begin);
    WithTypeOf(
        [&](auto* type) {
          using T = std::remove_pointer_t<decltype(type)>;
          Launch(GlobalAverageKernel<T>,
                 dim3(static_cast<unsigned>(tile.channel_blocks), static_cast<unsigned>(rows)),
                 dim3(kTileThreads), 0, stream, tile, Input(AdvanceRows(x, begin, plane)),
                 Output(AdvanceRows(y, begin, 1), in.channels, clears_padding), plane, in.channels);
        },
        y, x);
  }
}

void GlobalAvgPoolGradient(View dy, View dx, const ImageShape& in, bool clears_padding,
                           cudaStream_t stream) {
  constexpr int64_t kBlocksPerMultiprocessor = 8;
  const int64_t items = in.pixels() * LaneGroups(in.channels);
  WithTypeOf(
      [&](auto* type) {
        using T = std::remove_pointer_t<decltype(type)>;
        Launch(GlobalAverageGradientKernel<T>,
               dim3(GridBlocks(items, kTileThreads, kBlocksPerMultiprocessor)), dim3(kTileThreads),
               0, stream, Input(dy), Output(dx, in.channels, clears_padding), in.rows,
               in.height * in.width, in.channels);
      },
      dx, dy);
}

}  // namespace trainyard::engine::cuda
