// Declares 3x3 convolutions of stride 1 and padding 1 by minimal filtering F(4x4, 3x3): 36 products
// for the 16 results of a tile instead of 144. Lavin & Gray 2016, "Fast Algorithms for
// Convolutional Neural Networks", section 4.3:
//   y = A^T [sum over channels of (G w G^T) (B^T x B)] A
// The matrices are those of the points 0, +-2/3, +-3/2 and infinity, by which sums cancel less than
// by the 0, +-1, +-2 and infinity of that paper: Alam et al. 2022, "Winograd convolution for deep
// neural networks: efficient point selection".
// A few tiles are transformed at a time, in both directions, so that everything in between stays in
// cache. This pays off from 16 channels on. Values lie as nChw16c; channels that fill up a block
// are zero, and stay so. Only plain types here: see CMakeLists.txt.
#pragma once

#include <stdint.h>

namespace trainyard::engine::cpu {

struct WinogradShape {
  int64_t height, width;
  int64_t in_channels, out_channels;

  int64_t in_blocks() const { return (in_channels + 15) / 16; }
  int64_t out_blocks() const { return (out_channels + 15) / 16; }
  int64_t across() const { return (width + 3) / 4; }
  int64_t down() const { return (height + 3) / 4; }
  // The tiles of a row of the batch. The tiles of all rows are numbered one after the other.
  int64_t tiles() const { return across() * down(); }
  // Returns the floats of the transformed weights, u: 36 matrices [in, out], both filled up to
  // blocks. The matrices are a cache line further apart than they are long, so that the 36 values
  // of a weight do not share a cache's sets.
  int64_t matrix() const { return 256 * in_blocks() * out_blocks() + 16; }
  int64_t products() const { return 36 * matrix(); }
};

// The number of tiles that are computed together. A thread's share is a multiple of it.
inline constexpr int64_t kWinogradGroup = 16;

// Returns the floats between the matrices of a group's values, which also includes an extra cache
// line.
inline int64_t WinogradStride(int64_t blocks) {
  return (kWinogradGroup * blocks + 1) * 16;
}

// Returns the floats of scratch for a thread, which is a multiple of a cache line.
inline int64_t WinogradScratch(const WinogradShape& shape) {
  return 36 * (WinogradStride(shape.in_blocks()) + WinogradStride(shape.out_blocks())) +
         16 * shape.out_blocks();
}

// Blocks of output channels, [begin, end).
struct WinogradBlocks {
  int64_t begin, end;
};

struct WinogradKernels {
  // Computes u from weights [O, I, 3, 3]. If `turned`, u is for the gradient of the input, which is
  // a convolution from O to I channels with the weights turned by 180 degrees.
  void (*transform_weights)(const WinogradShape& shape, bool turned, const float* weights,
                            float* u);
  // Computes tiles [begin, end) of y = x * w + bias, rectified with `relu`. bias is [O], and may be
  // null.
  void (*convolve)(const WinogradShape& shape, int64_t begin, int64_t end, const float* x,
                   const float* u, const float* bias, bool relu, float* y, float* scratch);
  // Adds the contribution of tiles [begin, end) to the gradient of u, in `sums`, which is laid out
  // as u, and adds the sums of dy to dbias, filled up to blocks. dbias may be null. Only the range
  // of output channels is computed, to the same bits as in any other range.
  void (*add_gradient)(const WinogradShape& shape, int64_t begin, int64_t end, WinogradBlocks range,
                       const float* x, const float* dy, float* sums, float* dbias, float* scratch);
  // Computes the gradient of the weights [O, I, 3, 3] of one input channel from `parts` such sums,
  // which are `stride` floats apart. With `add`, it is added to the present value.
  void (*finish_gradient)(const WinogradShape& shape, int64_t channel, int64_t parts,
                          int64_t stride, const float* sums, bool add, float* dweights);
};

}  // namespace trainyard::engine::cpu
