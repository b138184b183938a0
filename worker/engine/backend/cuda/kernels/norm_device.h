// Contains what the forward and the gradient kernels of batch_norm share.
#pragma once

#include <cstdint>

#include "worker/engine/backend/cuda/kernels/norm.h"
#include "worker/engine/backend/cuda/kernels/tiles.h"

namespace trainyard::engine::cuda {

// Up to this many pixels, a single block takes all pixels of a few channels. The second pass finds
// them in the cache, and one launch costs less than further blocks would save.
inline constexpr int64_t kOneLaunchPixels = 2048;
inline constexpr int kOneLaunchThreads = 512;
// The bytes that memory delivers at once. A block of a single launch takes no fewer.
inline constexpr int64_t kSectorBytes = 32;

inline bool TakesOneLaunch(int64_t pixels) {
  return pixels <= kOneLaunchPixels;
}
inline Tile PlanNorm(int64_t pixels, int64_t channels, Type type) {
  if (TakesOneLaunch(pixels)) {
    const int64_t columns = kSectorBytes / (kLanes * SizeOf(type));
    return PlanTile(pixels, channels, columns, kOneLaunchThreads, true);
  }
  return PlanTile(pixels, channels, kTileColumns, kTileThreads, false);
}
// Plans the tile if sums and what follows from them are separate launches, whatever the number of
// pixels. It needs no more workspace.
inline Tile PlanParts(int64_t pixels, int64_t channels) {
  return PlanTile(pixels, channels, kTileColumns, kTileThreads, TakesOneLaunch(pixels));
}
constexpr int NormThreads(bool is_one_launch) {
  return is_one_launch ? kOneLaunchThreads : kTileThreads;
}

static_assert(kTicketsMax * sizeof(uint32_t) <= kNormTickets);

// Returns the factor of a channel. The gradient computes the sign of the output again and must get
// the same bits, so both call this function.
__device__ inline float NormScale(float weight, float variance, float eps) {
  return weight / sqrtf(variance + eps);
}
__device__ inline float Normalized(float x, float mean, float scale, float bias) {
  return fmaf(x - mean, scale, bias);
}

__device__ inline void AddOrWrite(float* to, float value, bool adds) {
  *to = adds ? *to + value : value;
}

// Loads the floats of a thread's channels from [channels], or `otherwise` if there are none.
__device__ inline Float8 LoadChannels(const float* from, const TilePlace& place,
                                      float otherwise = 0) {
  Float8 values;
#pragma unroll
  for (int i = 0; i < kLanes; ++i) {
    values.at[i] = i < place.count ? from[place.channel + i] : otherwise;
  }
  return values;
}

}  // namespace trainyard::engine::cuda
