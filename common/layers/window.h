// Computes with windows that move over an image, to find the size of the output of a convolution or
// a pooling. The engine infers its shapes by these functions, and specs are checked by them.
#pragma once

#include <cstdint>

namespace trainyard::layers {

// The largest pooling window. Its positions must fit the byte in which backends keep the position
// of the maximum.
inline constexpr int64_t kMaxPoolKernel = 15;

// One side of a window. The kernel and the stride are at least 1; a stride of 0, which means the
// kernel in specs, was replaced before.
struct Window {
  int64_t kernel = 1;
  int64_t stride = 1;
  int64_t padding = 0;
  int64_t dilation = 1;
  // If true, a last window that reaches over the padded input is kept, provided that it starts
  // within the input or the padding before it.
  bool ceil_mode = false;
};

// Returns the number of elements from the first to the last that a window reads.
int64_t Reach(const Window& window);
// Returns the number of windows along a side of `size` elements, as PyTorch counts them, or 0 if
// not even one fits.
int64_t WindowCount(int64_t size, const Window& window);

}  // namespace trainyard::layers
