// Divides [pixels, channels] among blocks when something is summed by channel. A block has columns
// of eight channels and rows of pixels, and strides over the pixels. Neighbouring blocks take
// neighbouring channels, so that all blocks that run together read whole pixels one after the
// other.
#pragma once

#include <algorithm>
#include <cstdint>

#include "worker/engine/backend/cuda/kernels/lanes.h"
#include "worker/engine/backend/cuda/kernels/reduce.h"

namespace trainyard::engine::cuda {

inline constexpr int kTileThreads = 256;
// This is 128 bytes of 16-bit elements, which is a line of the cache.
inline constexpr int64_t kTileColumns = 8;
// This leaves a thread 128 registers. Several loads in flight hide more latency than more threads
// would.
inline constexpr int kTileBlocksPerMultiprocessor = 2;
// The number of pixels that each thread should have at least before there are more blocks.
inline constexpr int64_t kTilePixelsPerThread = 4;
// The number of blocks of channels, over all groups, of which each has a ticket. More of them fill
// a device by themselves.
inline constexpr int64_t kTicketsMax = 1024;

// A launch of [channel_blocks, tiles, groups] blocks, each with columns * rows threads or a few
// more. Groups are sets of pixels that are summed separately.
struct Tile {
  int columns = 1;
  int rows = 1;
  int tiles = 1;
  int channel_blocks = 1;
  int groups = 1;
};

// Plans blocks of up to `columns_max` columns, or more if there are very many channels, and for
// each group one tile or as many as the device has room for. `pixels` are those of a usual group.
inline Tile PlanTile(int64_t pixels, int64_t channels, int64_t columns_max, int threads,
                     bool is_single, int64_t groups = 1) {
  const int64_t lanes = std::max<int64_t>(LaneGroups(channels), 1);
  // Each block of channels has a ticket for its groups.
  if (groups > 1) columns_max = std::max(columns_max, (lanes + kTicketsMax - 1) / kTicketsMax);
  const int64_t blocks = (lanes + columns_max - 1) / columns_max;
  const int64_t columns = (lanes + blocks - 1) / blocks;
  const int64_t rows = threads / columns;
  int64_t tiles = 1;
  if (!is_single && blocks * groups <= kTicketsMax) {
    const int64_t useful = pixels / (rows * kTilePixelsPerThread);
    const int64_t room = Multiprocessors() * kTileBlocksPerMultiprocessor / (blocks * groups);
    tiles = std::max<int64_t>(std::min(useful, room), 1);
  }
  return {static_cast<int>(columns), static_cast<int>(rows), static_cast<int>(tiles),
          static_cast<int>(blocks), static_cast<int>(groups)};
}

inline dim3 GridOf(const Tile& tile) {
  return dim3(static_cast<unsigned>(tile.channel_blocks), static_cast<unsigned>(tile.tiles),
              static_cast<unsigned>(tile.groups));
}

// The place of a thread: its channels and their number (0 for a thread that is left over), its
// first pixel, and the distance to its next pixel.
struct TilePlace {
  int row = 0;
  int column = 0;
  int count = 0;
  int64_t channel = 0;
  int64_t pixel = 0;
  int64_t step = 0;
};

// `first_pixel` is that of the group.
__device__ inline TilePlace PlaceIn(const Tile& tile, int64_t channels, int64_t first_pixel = 0) {
  TilePlace place;
  place.row = static_cast<int>(threadIdx.x) / tile.columns;
  place.column = static_cast<int>(threadIdx.x) % tile.columns;
  place.channel = (static_cast<int64_t>(blockIdx.x) * tile.columns + place.column) * kLanes;
  if (place.row < tile.rows && place.channel < channels) {
    place.count = LaneCount(channels, place.channel);
  }
  place.pixel = first_pixel + static_cast<int64_t>(blockIdx.y) * tile.rows + place.row;
  place.step = static_cast<int64_t>(tile.tiles) * tile.rows;
  return place;
}

// Returns the floats of shared memory that SumOverRows needs.
constexpr int TileShared(int values, int threads) {
  return values * (threads / 2);
}

// Adds `values` over the rows of each column, into those of row 0. The whole block calls it.
// `shared` has TileShared floats, which may be reused when it returns.
template <int kThreads, int kValues>
__device__ inline void SumOverRows(const Tile& tile, const TilePlace& place,
                                   float (&values)[kValues], float* shared) {
  for (int active = tile.rows; active > 1;) {
    const int half = active / 2;
    const int kept = active - half;
    if (place.row >= kept && place.row < active) {
      const int at = (place.row - kept) * tile.columns + place.column;
#pragma unroll
      for (int i = 0; i < kValues; ++i) {
        shared[i * (kThreads / 2) + at] = values[i];
      }
    }
    __syncthreads();
    if (place.row < half) {
      const int at = place.row * tile.columns + place.column;
#pragma unroll
      for (int i = 0; i < kValues; ++i) {
        values[i] += shared[i * (kThreads / 2) + at];
      }
    }
    __syncthreads();
    active = kept;
  }
}

// The sums of a group's tiles of a block of channels: kArrays arrays of eight channels a column,
// partials[(tile * kArrays + array) * channels rounded up to eight + channel].
template <int kArrays>
__device__ inline float* PartialsOf(float* partials, int64_t tile, int64_t padded_channels,
                                    int array, const TilePlace& place) {
  return partials + (tile * kArrays + array) * padded_channels + place.channel;
}

// Sums all tiles of a group into the threads of row 0 of the last block of a block of channels, and
// returns true there, and false elsewhere. The whole block calls it with its own sums in row 0.
template <int kThreads, int kArrays>
__device__ inline bool SumOverTiles(const Tile& tile, const TilePlace& place, int64_t channels,
                                    float (&values)[kArrays * kLanes], float* partials,
                                    uint32_t* tickets, float* shared) {
  if (tile.tiles == 1) {
    return true;
  }
  const int64_t padded_channels = LaneGroups(channels) * kLanes;
  partials += static_cast<int64_t>(blockIdx.z) * tile.tiles * kArrays * padded_channels;
  if (place.row == 0 && place.count > 0) {
#pragma unroll
    for (int array = 0; array < kArrays; ++array) {
      float* to = PartialsOf<kArrays>(partials, blockIdx.y, padded_channels, array, place);
#pragma unroll
      for (int i = 0; i < kLanes; ++i) {
        to[i] = values[array * kLanes + i];
      }
    }
  }
  if (!IsLastBlock(tickets + blockIdx.z * gridDim.x + blockIdx.x,
                   static_cast<uint32_t>(tile.tiles))) {
    return false;
  }
#pragma unroll
  for (int i = 0; i < kArrays * kLanes; ++i) {
    values[i] = 0;
  }
  if (place.count > 0) {
#pragma unroll 2
    for (int t = place.row; t < tile.tiles; t += tile.rows) {
#pragma unroll
      for (int array = 0; array < kArrays; ++array) {
        const float* from = PartialsOf<kArrays>(partials, t, padded_channels, array, place);
#pragma unroll
        for (int i = 0; i < kLanes; ++i) {
          values[array * kLanes + i] += from[i];
        }
      }
    }
  }
  SumOverRows<kThreads>(tile, place, values, shared);
  return true;
}

}  // namespace trainyard::engine::cuda
