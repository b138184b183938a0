// Declares ops that look at one element at a time, copies and changes of layout. All are enqueued
// on a stream, and none waits. Views of one call have the same pixels and channels; element types
// may differ unless stated otherwise. An output may be an input's memory if both views are alike.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "worker/engine/backend/cuda/device/step_control.h"
#include "worker/engine/backend/cuda/device/types.h"
#include "worker/engine/backend/cuda/kernels/packed_weight.h"

namespace trainyard::engine::cuda {

// The formulas are in graph/ops/elementwise.cc.
enum class Unary { kRelu, kTanh, kSigmoid, kGelu, kGeluTanh };

// Computes y = f(x), over [pixels, channels]. With `clears_padding`, the padding channels of `y` up
// to PaddedChannels become zero if its stride has room for them.
void UnaryForward(Unary op, View x, View y, int64_t pixels, int64_t channels, bool clears_padding,
                  cudaStream_t stream);
// Computes dx = dy f'. `saved` is y for relu, tanh and sigmoid, and x for gelu.
void UnaryGradient(Unary op, View dy, View saved, View dx, int64_t pixels, int64_t channels,
                   cudaStream_t stream, bool clears_padding = false);
// y = a + b.
void Add(View a, View b, View y, int64_t pixels, int64_t channels, cudaStream_t stream,
         bool clears_padding = false);
// Computes y = x, converted. Padding is treated as in UnaryForward.
void Copy(View x, View y, int64_t pixels, int64_t channels, bool clears_padding,
          cudaStream_t stream);
// These convert between images [pixels, channels] and features [rows, channels * height * width] in
// NCHW order.
void FlattenImages(View images, View features, const ImageShape& shape, cudaStream_t stream);
void UnflattenImages(View features, View images, const ImageShape& shape, bool clears_padding,
                     cudaStream_t stream);
// Sets sums[c] to the sum of x over the pixels, or adds it, which gives the gradient of a bias. The
// order is fixed. The workspace has ColumnSumWorkspace bytes; for the tickets see kNormTickets. The
// same launch unpacks another gradient, if there is one.
int64_t ColumnSumWorkspace(int64_t pixels, int64_t channels);
void ColumnSum(View x, int64_t pixels, int64_t channels, bool adds, float* sums, void* workspace,
               uint32_t* tickets, const PackedGradient& other, cudaStream_t stream);
// Computes x += bias ([channels], of the same type), then rectified if `relu`. This is for products
// without such an epilogue.
void AddBias(View x, const void* bias, bool relu, int64_t pixels, int64_t channels,
             cudaStream_t stream);

// Computes dropout (graph/ops/dropout.cc), which is also its own gradient: x / (1 - rate) if an
// element is kept. `threshold` is the DropoutThreshold; key, step and row come from `control`.
// Elements are counted in NCHW order of each row, which has pixels_per_row pixels of `channels`.
// With counts_by_pixel, for sequences of [positions, channels] a row, they are counted pixel by
// pixel.
void Dropout(View x, View y, int64_t rows, int64_t pixels_per_row, int64_t channels, uint32_t layer,
             uint32_t threshold, float scale, const StepControl* control, cudaStream_t stream,
             bool clears_padding = false, bool counts_by_pixel = false);

// These compute lrn (graph/ops/lrn.cc), across channels.
struct LrnParameters {
  int64_t size = 5;
  float alpha = 1e-4F;
  float beta = 0.75F;
  float k = 1;
};
void LrnForward(const LrnParameters& lrn, View x, View y, int64_t pixels, int64_t channels,
                cudaStream_t stream, bool clears_padding = false);
void LrnGradient(const LrnParameters& lrn, View dy, View x, View dx, int64_t pixels,
                 int64_t channels, cudaStream_t stream, bool clears_padding = false);

}  // namespace trainyard::engine::cuda
