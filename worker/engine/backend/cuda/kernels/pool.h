// Declares pooling (graph/ops/pool.cc) over NHWC images.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "worker/engine/backend/cuda/device/types.h"

namespace trainyard::engine::cuda {

struct PoolWindow {
  int64_t kernel = 1;
  int64_t stride = 1;
  int64_t padding = 0;
  bool count_padding = true;
};

// The index of a window without a maximum, which with `relu` is a window whose maximum is not
// positive.
inline constexpr uint8_t kNoMaximum = 255;

// Computes maxima. `in` is the shape of x, `out` that of y. `index` has bytes [pixels of out,
// index_stride], the position of the first maximum in its window, row-major; it is null if not
// needed. A NaN counts as largest.
void MaxPoolForward(const PoolWindow& window, View x, View y, uint8_t* index, int64_t index_stride,
                    bool relu, const ImageShape& in, const ImageShape& out, bool clears_padding,
                    cudaStream_t stream);
// dx gets dy at the maximum of each window, summed in a fixed order.
void MaxPoolGradient(const PoolWindow& window, View dy, const uint8_t* index, int64_t index_stride,
                     View dx, const ImageShape& in, const ImageShape& out, bool clears_padding,
                     cudaStream_t stream);
void AvgPoolForward(const PoolWindow& window, View x, View y, const ImageShape& in,
                    const ImageShape& out, bool clears_padding, cudaStream_t stream);
void AvgPoolGradient(const PoolWindow& window, View dy, View dx, const ImageShape& in,
                     const ImageShape& out, bool clears_padding, cudaStream_t stream);
// Computes averages over height and width. y is [rows, channels].
void GlobalAvgPoolForward(View x, View y, const ImageShape& in, bool clears_padding,
                          cudaStream_t stream);
void GlobalAvgPoolGradient(View dy, View dx, const ImageShape& in, bool clears_padding,
                           cudaStream_t stream);
// Repeats each pixel scale x scale times. `in` is the shape of x.
void UpsampleForward(View x, View y, const ImageShape& in, int64_t scale, bool clears_padding,
                     cudaStream_t stream);
// Sets dx to the sums of dy over these pixels, in a fixed order.
void UpsampleGradient(View dy, View dx, const ImageShape& in, int64_t scale, bool clears_padding,
                      cudaStream_t stream);

}  // namespace trainyard::engine::cuda
