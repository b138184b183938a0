// Computes windows once for convolutions and poolings, for the specs and for the engine.
#include "common/layers/window.h"

namespace trainyard::layers {

int64_t Reach(const Window& window) {
  return window.dilation * (window.kernel - 1) + 1;
}

int64_t WindowCount(int64_t size, const Window& window) {
  const int64_t span = size + 2 * window.padding - Reach(window);
  if (span < 0) return 0;
  if (!window.ceil_mode) return span / window.stride + 1;
  const int64_t count = (span + window.stride - 1) / window.stride + 1;
  return (count - 1) * window.stride >= size + window.padding ? count - 1 : count;
}

}  // namespace trainyard::layers
