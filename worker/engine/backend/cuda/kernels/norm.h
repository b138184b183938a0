// batch_norm and its gradient over [pixels, channels] (graph/ops/batch_norm.cc), with all that the
// passes fuse into them. Sums are taken in a fixed order: the same bits each time.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "worker/engine/backend/cuda/step_control.h"
#include "worker/engine/backend/cuda/types.h"

namespace trainyard::engine::cuda {

// One bit an element, [pixels, ceil(channels / 32)] words; channel c is bit c % 32 of word c / 32.
constexpr int64_t MaskWords(int64_t channels) {
  return (channels + 31) / 32;
}

struct NormForward {
  View x, y;
  View residual;  // added before it is rectified
  bool relu = false;
  uint32_t* mask = nullptr;       // where y is positive; null: not wanted
  const float* weight = nullptr;  // [channels]
  const float* bias = nullptr;
  float eps = 1e-5F;
  int64_t pixels = 0;
  int64_t channels = 0;
  // Zeroes the padding channels of y up to PaddedChannels.
  bool clears_padding = false;
};

// Where the statistics of a batch are summed up over the batches of a step: weight * mean, and
// weight * variance * n / (n - 1), both [channels]. `weight` comes from the control.
struct StatisticSums {
  float* mean = nullptr;  // null: none are kept
  float* variance = nullptr;
  bool adds = false;  // false: overwrites
  const StepControl* control = nullptr;
  float share = 1;  // of the batch's rows: weighs like the weight
};

// By which a launch knows its last block, which sums up what all blocks found: so many bytes that
// nothing else uses, zero before the first use and left zero by each. Ops that may run at once (on
// several streams) need tickets of their own.
inline constexpr int64_t kNormTickets = 4096;
// Bytes for NormTraining or NormBackward, in nobody's use from one launch to the next: 16-byte
// aligned. It depends on the device.
int64_t NormWorkspace(int64_t pixels, int64_t channels);

// Batch statistics into mean and variance (biased; f32 [channels]), then y. Two launches, or one
// where there are few pixels.
void NormTraining(const NormForward& norm, float* mean, float* variance, const StatisticSums& sums,
                  void* workspace, uint32_t* tickets, cudaStream_t stream);
// y by given statistics: those of an evaluation, or to compute y again.
void NormApply(const NormForward& norm, const float* mean, const float* variance,
               cudaStream_t stream);
// The same statistics from the sums and sums of squares that a convolution's epilogue took, f32
// [channels] each (cuDNN's genstats), in place of a pass over x.
void NormFinalize(const float* sum, const float* square_sum, int64_t pixels, int64_t channels,
                  float* mean, float* variance, const StatisticSums& sums, cudaStream_t stream);

// The parts of NormTraining, for statistics that are those of more pixels than these: mean and
// variance of x (all else but its pixels and channels is not read), and their sums, of `count`
// pixels. NormApply follows.
void NormStatistics(const NormForward& norm, float* mean, float* variance, void* workspace,
                    uint32_t* tickets, cudaStream_t stream);
void NormSumStatistics(const float* mean, const float* variance, int64_t count, int64_t channels,
                       const StatisticSums& sums, cudaStream_t stream);

// With d = dy + second_gradient, zero where the output was not positive, and h = (x - mean) *
// inverse:
//   dbias = sum d; dweight = sum d h
//   dx = weight * inverse * (d - (dbias + h dweight) / pixels) + addend
struct NormGradient {
  View dy, x;
  View second_gradient;
  // The output was positive: by these bits, or by computing it again (relu with bias), or always.
  const uint32_t* mask = nullptr;
  bool relu = false;
  const float* bias = nullptr;  // read where relu and no mask
  const float* weight = nullptr;
  const float* mean = nullptr;
  const float* variance = nullptr;
  float eps = 1e-5F;
  View addend;
  View dx;                   // null: not wanted
  View residual_gradient;    // d; null: not wanted
  float* dweight = nullptr;  // [channels]
  float* dbias = nullptr;
  bool adds = false;  // dweight and dbias are added to what is there
  int64_t pixels = 0;
  int64_t channels = 0;
  bool clears_padding = false;  // of dx and residual_gradient
};
// Two launches, or one where there are few pixels.
void NormBackward(const NormGradient& norm, void* workspace, uint32_t* tickets,
                  cudaStream_t stream);
// Its parts, for statistics that are those of more pixels than these: all but dx, which leaves the
// sums of d and of d h of these pixels at the begin of the workspace, and from there dx, by the
// sums over `count` pixels.
void NormBackwardSums(const NormGradient& norm, void* workspace, uint32_t* tickets,
                      cudaStream_t stream);
void NormBackwardInput(const NormGradient& norm, const void* workspace, int64_t count,
                       cudaStream_t stream);
// group_norm: over the pixels of a row and the channels of a group. `image` is the shape of x.
struct GroupNormShape {
  ImageShape image;
  int64_t groups = 1;
};
// mean, inverse: [rows, groups].
void GroupNormForward(const GroupNormShape& shape, View x, const float* weight, const float* bias,
                      float eps, View y, float* mean, float* inverse, bool clears_padding,
                      cudaStream_t stream);
// dx may be null, or lie over dy. Parameters' gradients go to dweight and dbias [channels], or with
// `adds` are added to what is there. The workspace holds GroupNormWorkspace bytes.
int64_t GroupNormWorkspace(const GroupNormShape& shape);
void GroupNormBackward(const GroupNormShape& shape, View dy, View x, const float* weight,
                       const float* mean, const float* inverse, View dx, float* dweight,
                       float* dbias, bool adds, bool clears_padding, void* workspace,
                       cudaStream_t stream);
// Each of both sums begins at a multiple of so many floats.
int64_t NormSumsStride(int64_t channels);

}  // namespace trainyard::engine::cuda
