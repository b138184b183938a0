// The arithmetic of windows that move over an image: how large is what a convolution or a pooling
// gives. The engine infers its shapes by these functions, and specs are checked by them.
#pragma once

#include <cstdint>

namespace trainyard::layers {

// The largest pooling window: its positions must fit the byte in which backends keep the maximum's.
inline constexpr int64_t kMaxPoolKernel = 15;

// One side of a window: kernel at least 1, stride at least 1 and never 0 for "the kernel".
struct Window {
  int64_t kernel = 1;
  int64_t stride = 1;
  int64_t padding = 0;
  int64_t dilation = 1;
  // A last window that reaches over the padded input is kept, if it starts within the input or the
  // padding before it.
  bool ceil_mode = false;
};

// Elements from the first to the last that a window reads.
int64_t Reach(const Window& window);
// The number of windows along a side of `size` elements, as PyTorch counts them; 0 where not one
// fits.
int64_t WindowCount(int64_t size, const Window& window);

}  // namespace trainyard::layers
