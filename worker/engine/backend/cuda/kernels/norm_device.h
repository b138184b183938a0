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
// Returns the number of pixels of a group, if all have about as many.
inline int64_t UsualPixels(int64_t pixels, int64_t groups) {
  return (pixels + groups - 1) / groups;
}
inline Tile PlanNorm(int64_t pixels, int64_t channels, Type type, int64_t groups) {
  const int64_t usual = UsualPixels(pixels, groups);
  if (TakesOneLaunch(usual)) {
    const int64_t columns = kSectorBytes / (kLanes * SizeOf(type));
    return PlanTile(usual, channels, columns, kOneLaunchThreads, true, groups);
  }
  return PlanTile(usual, channels, kTileColumns, kTileThreads, false, groups);
}
// Plans the tile if sums and what follows from them are separate launches, whatever the number of
// pixels. It needs no more workspace.
inline Tile PlanParts(int64_t pixels, int64_t channels, int64_t groups) {
  const int64_t usual = UsualPixels(pixels, groups);
  return PlanTile(usual, channels, kTileColumns, kTileThreads, TakesOneLaunch(usual), groups);
}
constexpr int NormThreads(bool is_one_launch) {
  return is_one_launch ? kOneLaunchThreads : kTileThreads;
}

// The tickets for tiles come first, then those for groups.
static_assert(2 * kTicketsMax * sizeof(uint32_t) <= kNormTickets);

// The pixels of a group.
struct PixelRange {
  int64_t begin = 0;
  int64_t end = 0;

  __device__ int64_t size() const { return end - begin; }
};
__device__ inline PixelRange PixelsOf(const NormGroups& groups, int64_t group, int64_t pixels) {
  if (groups.count == 1) {
    return {0, pixels};
  }
  return {groups.begins[group] * groups.plane, groups.begins[group + 1] * groups.plane};
}

// Returns true in all threads of the last block of a block of channels that has finished the sums
// of its group, and sees those of all groups. The whole block calls it.
__device__ inline bool IsLastGroup(uint32_t* tickets) {
  return gridDim.z == 1 || IsLastBlock(tickets + kTicketsMax + blockIdx.x, gridDim.z);
}

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

// Adds the statistics of a batch, or of a group that has this share of its rows, to the sums of the
// step.
__device__ inline void WriteStatistics(const StatisticSums& sums, int64_t channel, int64_t pixels,
                                       float mean, float variance, float share = 1) {
  if (sums.mean == nullptr) {
    return;
  }
  const float weight = sums.control->weight * share;
  const float count = static_cast<float>(pixels);
  AddOrWrite(sums.mean + channel, weight * mean, sums.adds);
  AddOrWrite(sums.variance + channel, weight * variance * count / (count - 1), sums.adds);
}

// Loads the floats of a thread's channels from [channels], or `otherwise` if there are none.
__device__ inline Float8 LoadChannels(const float* from, const TilePlace& place,
                                      float otherwise = 0) {
  return Unpack(LoadElements<kLanes>(from + place.channel, place.count, 1, otherwise));
}

}  // namespace trainyard::engine::cuda
