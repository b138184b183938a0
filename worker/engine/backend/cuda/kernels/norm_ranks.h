// Declares how batch_norm merges the statistics of all ranks on the device. Each rank brings its
// numbers in a slot of its own, beside zeros in those of the others, so a sum over the ranks gives
// all of them the same numbers, whatever its order. They are merged in the order of the ranks, in
// f64, without fused operations, so the bits are those of RankStatistics on the host.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "worker/engine/backend/cuda/kernels/norm.h"

namespace trainyard::engine::cuda {

// f32 [ranks, 1 + 2 * channels] in the memory of the device: rows, then two numbers of each
// channel.
struct RankSlots {
  float* values = nullptr;
  int64_t ranks = 1;
  int64_t rank = 0;  // of the own slot
  int64_t channels = 0;

  constexpr int64_t slot_size() const { return 1 + 2 * channels; }
  constexpr int64_t size() const { return ranks * slot_size(); }
};

// Writes the own slot, and zeros into the others. `first` and `second`, [channels] each, are not
// read if there are no rows.
void PackSlot(const float* first, const float* second, int64_t rows, const RankSlots& slots,
              cudaStream_t stream);

// Tells the host of a layer whose statistics are over too few values.
struct TooFewValues {
  uint32_t layer = 0;   // 0 means that there is none
  uint32_t values = 0;  // per channel, of all ranks
};

struct MergedMoments {
  float* mean = nullptr;      // [channels]; null on a rank without rows, which keeps none
  float* variance = nullptr;  // biased
  float* rows = nullptr;      // receives the number of rows of all ranks
  int64_t plane = 1;          // the values per channel in a row
  StatisticSums sums;
  uint32_t layer = 0;  // is not 0
  TooFewValues* too_few = nullptr;
};
// Merges means and variances (Chan, Golub & LeVeque 1983, equation 2.1).
void MergeMoments(const RankSlots& slots, const MergedMoments& merged, cudaStream_t stream);

// Writes the sums over the slots to first and second.
void MergeSums(const RankSlots& slots, float* first, float* second, cudaStream_t stream);

}  // namespace trainyard::engine::cuda
