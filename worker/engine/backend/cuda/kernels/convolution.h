// Declares convolutions without tensor cores, for shapes that cuDNN has no plan for: small nets
// with odd numbers of channels. They are written for clarity, not speed. Images are NHWC, weights
// [K, R, S, C / groups].
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "worker/engine/backend/cuda/device/types.h"

namespace trainyard::engine::cuda {

struct ConvShape {
  ImageShape in;  // channels without padding
  ImageShape out;
  int64_t kernel = 1;
  int64_t stride = 1;
  int64_t padding = 0;
  int64_t dilation = 1;
  int64_t groups = 1;
  // The elements from one row of input channels to the next in the weight: channels / groups, or
  // padded.
  int64_t weight_stride = 0;
};

// All views and `weight` are of one type. `bias` is f32 [K] or null.
void ConvForward(const ConvShape& shape, View x, const void* weight, const float* bias, bool relu,
                 View y, bool clears_padding, cudaStream_t stream);
void ConvInputGradient(const ConvShape& shape, View dy, const void* weight, View dx,
                       bool clears_padding, cudaStream_t stream);
// dweight is f32 with rows of weight_stride. It is overwritten, or added to.
void ConvWeightGradient(const ConvShape& shape, View dy, View x, float* dweight, bool adds,
                        cudaStream_t stream);

}  // namespace trainyard::engine::cuda
