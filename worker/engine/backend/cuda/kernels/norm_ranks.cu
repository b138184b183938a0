// Packs and merges the statistics of batch_norm over all ranks. The numbers are few, so each thread
// goes over all ranks of its channel.
#include "worker/engine/backend/cuda/kernels/device.h"
#include "worker/engine/backend/cuda/kernels/norm_device.h"
#include "worker/engine/backend/cuda/kernels/norm_ranks.h"

namespace trainyard::engine::cuda {
namespace {

constexpr int kThreads = 256;

// These are never fused, so that the bits depend neither on the compiler nor on the device.
__device__ double Plus(double a, double b) {
  return __dadd_rn(a, b);
}
__device__ double Times(double a, double b) {
  return __dmul_rn(a, b);
}

__global__ void PackKernel(const float* first, const float* second, float rows, RankSlots slots) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= slots.size()) {
    return;
  }
  const int64_t place = at % slots.slot_size() - 1;  // -1 is that of the rows
  float value = 0;
  if (at / slots.slot_size() == slots.rank && rows > 0) {
    value = place < 0                ? rows
            : place < slots.channels ? first[place]
                                     : second[place - slots.channels];
  }
  slots.values[at] = value;
}

__global__ void MergeMomentsKernel(RankSlots slots, MergedMoments merged) {
  const int64_t channel = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (channel >= slots.channels) {
    return;
  }
  double rows = 0;
  double mean = 0;
  double variance = 0;
  for (int64_t rank = 0; rank < slots.ranks; ++rank) {
    const float* slot = slots.values + rank * slots.slot_size();
    const double of_rank = static_cast<double>(slot[0]);
    if (of_rank == 0) {
      continue;
    }
    const double all = Plus(rows, of_rank);
    const double share = of_rank / all;
    const double rest = Plus(1, -share);
    const double distance = Plus(static_cast<double>(slot[1 + channel]), -mean);
    const double between = Times(Times(Times(rest, share), distance), distance);
    const double spread = static_cast<double>(slot[1 + slots.channels + channel]);
    variance = Plus(Plus(Times(rest, variance), Times(share, spread)), between);
    mean = Plus(mean, Times(share, distance));
    rows = all;
  }
  const int64_t values = static_cast<int64_t>(rows) * merged.plane;
  if (channel == 0) {
    *merged.rows = static_cast<float>(rows);
    if (values < 2) {
      *merged.too_few = {merged.layer, static_cast<uint32_t>(values)};
    }
  }
  if (merged.mean == nullptr) {
    return;
  }
  merged.mean[channel] = static_cast<float>(mean);
  merged.variance[channel] = static_cast<float>(variance);
  WriteStatistics(merged.sums, channel, values, static_cast<float>(mean),
                  static_cast<float>(variance));
}

__global__ void MergeSumsKernel(RankSlots slots, float* first, float* second) {
  const int64_t channel = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (channel >= slots.channels) {
    return;
  }
  double sums[2] = {0, 0};
  for (int64_t rank = 0; rank < slots.ranks; ++rank) {
    const float* slot = slots.values + rank * slots.slot_size() + 1;
    sums[0] += static_cast<double>(slot[channel]);
    sums[1] += static_cast<double>(slot[slots.channels + channel]);
  }
  first[channel] = static_cast<float>(sums[0]);
  second[channel] = static_cast<float>(sums[1]);
}

dim3 BlocksFor(int64_t threads) {
  return dim3(static_cast<unsigned>((threads + kThreads - 1) / kThreads));
}

}  // namespace

void PackSlot(const float* first, const float* second, int64_t rows, const RankSlots& slots,
              cudaStream_t stream) {
  Launch(PackKernel, BlocksFor(slots.size()), dim3(kThreads), 0, stream, first, second,
         static_cast<float>(rows), slots);
}

void MergeMoments(const RankSlots& slots, const MergedMoments& merged, cudaStream_t stream) {
  Launch(MergeMomentsKernel, BlocksFor(slots.channels), dim3(kThreads), 0, stream, slots, merged);
}

void MergeSums(const RankSlots& slots, float* first, float* second, cudaStream_t stream) {
  Launch(MergeSumsKernel, BlocksFor(slots.channels), dim3(kThreads), 0, stream, slots, first,
         second);
}

}  // namespace trainyard::engine::cuda
