// Declares batch_norm and its gradient over [pixels, channels] (graph/ops/batch_norm.cc), with
// everything that the passes fuse into them. Sums are taken in a fixed order, so the bits are the
// same each time.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "worker/engine/backend/cuda/device/step_control.h"
#include "worker/engine/backend/cuda/device/types.h"

namespace trainyard::engine::cuda {

// Returns the words of a mask for one pixel. A mask has one bit for each element, in [pixels,
// ceil(channels / 32)] words. Channel c is bit c % 32 of word c / 32.
constexpr int64_t MaskWords(int64_t channels) {
  return (channels + 31) / 32;
}

// The division of the rows into groups (Batch::groups), whose statistics are taken separately.
// Statistics of groups are [count, channels].
struct NormGroups {
  int64_t count = 1;
  // The row where each group begins, then the end, [count + 1] in the memory of the device. It is
  // not read if there is one group of all rows.
  const int32_t* begins = nullptr;
  int64_t plane = 1;  // the pixels of a row
};

struct NormForward {
  View x;
  View y;  // null if `scale` and `shift` are written instead
  // The [channels] by which readers of x compute relu(x scale + shift), which is y. They are zero
  // in the padding.
  View scale = {}, shift = {};
  View residual = {};  // added before the rectifier
  bool relu = false;
  uint32_t* mask = nullptr;       // bits that say where y is positive; null if not needed
  const float* weight = nullptr;  // [channels]
  const float* bias = nullptr;
  float eps = 1e-5F;
  int64_t pixels = 0;  // of all groups
  int64_t channels = 0;
  NormGroups groups = {};
  // Zeroes the padding channels of y up to PaddedChannels.
  bool clears_padding = false;
};

// The memory in which the statistics of a batch are summed over the batches of a step: weight *
// mean, and weight * variance * n / (n - 1), both [channels]. `weight` comes from the control; a
// group has its share of it by rows. Groups are added in their order.
struct StatisticSums {
  float* mean = nullptr;  // null if none are kept
  float* variance = nullptr;
  bool adds = false;  // if false, the sums are overwritten
  const StepControl* control = nullptr;
};

// The bytes of the tickets by which a launch recognises its last block, which sums what all blocks
// found. They must not be used otherwise. They must be zero before the first use, and each launch
// leaves them zero. Ops that may run at once on several streams need tickets of their own.
inline constexpr int64_t kNormTickets = 8192;
// Returns the bytes of workspace for NormTraining or NormBackward with up to this many groups,
// which must be aligned to 16 bytes. It carries nothing from one launch to the next. The number
// depends on the device.
int64_t NormWorkspace(int64_t pixels, int64_t channels, int64_t groups_max);

// Computes the batch statistics mean and variance (biased; f32 [groups, channels]), then y. It
// takes two launches, or one if there are few pixels in each group. Without y, of a single group,
// it takes one, in which scale and shift are computed.
void NormTraining(const NormForward& norm, float* mean, float* variance, const StatisticSums& sums,
                  void* workspace, uint32_t* tickets, cudaStream_t stream);
// Computes y from given statistics, for an evaluation or to compute y again.
void NormApply(const NormForward& norm, const float* mean, const float* variance,
               cudaStream_t stream);
// Returns how many kernels NormTraining launches for one group. NormBackward launches as many if dx
// is wanted. The second of two reads x again. Several groups of as many pixels in all take no more.
int64_t NormKernels(int64_t pixels);
// Computes the same statistics from the sums and sums of squares that a convolution's epilogue
// took, f32 [channels] each (cuDNN's genstats), instead of a pass over x. It computes scale and
// shift, too, if the norm has them, but never y.
void NormFinalize(const float* sum, const float* square_sum, const NormForward& norm, float* mean,
                  float* variance, const StatisticSums& sums, cudaStream_t stream);

// The first part of NormTraining for a single group, for statistics over more pixels than these. It
// computes mean and variance of x, and reads of `norm` nothing else but pixels and channels. When
// they are those of all pixels (MergeMoments), NormApply follows.
void NormStatistics(const NormForward& norm, float* mean, float* variance, void* workspace,
                    uint32_t* tickets, cudaStream_t stream);
// Adds statistics [groups, channels] of `pixels` in all groups to the sums, for a step whose
// forward half did not.
void NormSumStatistics(const float* mean, const float* variance, const NormGroups& groups,
                       int64_t pixels, int64_t channels, const StatisticSums& sums,
                       cudaStream_t stream);

// The gradient, by the statistics of each group. With d = dy + second_gradient, zero where the
// output was not positive, and h = (x - mean) * inverse:
//   dbias = sum d; dweight = sum d h
//   dx = weight * inverse * (d - (dbias + h dweight) / pixels) + addend
struct NormGradient {
  View dy, x;
  View second_gradient;
  // Tells where the output was positive: by these bits, or by computing it again (relu with bias),
  // or else everywhere.
  const uint32_t* mask = nullptr;
  bool relu = false;
  const float* bias = nullptr;  // read with relu and without a mask
  const float* weight = nullptr;
  const float* mean = nullptr;  // [groups, channels]
  const float* variance = nullptr;
  float eps = 1e-5F;
  View addend;
  View dx;                   // null if not needed
  View residual_gradient;    // receives d; null if not needed
  float* dweight = nullptr;  // [channels]
  float* dbias = nullptr;
  bool adds = false;   // true if dweight and dbias are added to the present values
  int64_t pixels = 0;  // of all groups, in whose order dweight and dbias are added
  int64_t channels = 0;
  NormGroups groups = {};
  bool clears_padding = false;  // of dx and residual_gradient
};
// Computes the gradient. It takes two launches, or one if there are few pixels in each group.
void NormBackward(const NormGradient& norm, void* workspace, uint32_t* tickets,
                  cudaStream_t stream);
// The parts of NormBackward for a single group, for statistics over more pixels than these. The
// first does everything but dx, and leaves the sums of d and of d h over these pixels at the
// beginning of the workspace. The second computes dx from there, by sums over all pixels of as many
// rows as `rows` says, in the memory of the device. If it is null, these are the norm's pixels.
void NormBackwardSums(const NormGradient& norm, void* workspace, uint32_t* tickets,
                      cudaStream_t stream);
struct RowCount {
  const float* rows = nullptr;
  int64_t plane = 1;  // the pixels of a row
};
void NormBackwardInput(const NormGradient& norm, const void* workspace, const RowCount& all,
                       cudaStream_t stream);
// The two sums begin this many floats apart.
int64_t NormSumsStride(int64_t channels);
// Does the rest of NormBackward for a single group if the gradient of a convolution has taken the
// sums, f32 [2, NormSumsStride], dbias first: computes dx, and writes or adds dweight and dbias. dy
// must be d already.
void NormBackwardOfSums(const NormGradient& norm, const float* sums, cudaStream_t stream);
// Writes what such a convolution reads of the norm: mean, 1 / sqrt(variance + eps), weight and
// bias, f32 [4, NormSumsStride], zero in the padding.
void NormPackOperands(const NormGradient& norm, float* operands, cudaStream_t stream);

// group_norm (graph/ops/group_norm.cc), over the pixels of a row and the channels of a group.
// `image` is the shape of x.
struct GroupNormShape {
  ImageShape image;
  int64_t groups = 1;
};
// mean and inverse are [rows, groups].
void GroupNormForward(const GroupNormShape& shape, View x, const float* weight, const float* bias,
                      float eps, View y, float* mean, float* inverse, bool clears_padding,
                      cudaStream_t stream);
// dx may be null, or the memory of dy. dweight and dbias, [channels] each, are overwritten, or
// added to. The workspace has GroupNormWorkspace bytes.
int64_t GroupNormWorkspace(const GroupNormShape& shape);
void GroupNormBackward(const GroupNormShape& shape, View dy, View x, const float* weight,
                       const float* mean, const float* inverse, View dx, float* dweight,
                       float* dbias, bool adds, bool clears_padding, void* workspace,
                       cudaStream_t stream);

}  // namespace trainyard::engine::cuda
