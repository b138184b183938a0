// Exchanges the two inner dimensions of a weight.
#include "worker/engine/backend/cuda/weight_order.h"

namespace trainyard::engine::cuda {
namespace {

// Converts [outer, a, b] to [outer, b, a].
std::vector<float> SwapInner(int64_t outer, int64_t a, int64_t b, absl::Span<const float> values) {
  std::vector<float> swapped(values.size());
  for (int64_t o = 0; o < outer; ++o) {
    const float* const from = values.data() + o * a * b;
    float* const to = swapped.data() + o * a * b;
    for (int64_t i = 0; i < a; ++i) {
      for (int64_t j = 0; j < b; ++j) to[j * a + i] = from[i * b + j];
    }
  }
  return swapped;
}

}  // namespace

std::vector<float> ToDeviceOrder(const Shape& port_shape, absl::Span<const float> values) {
  if (!IsReordered(port_shape)) return {values.begin(), values.end()};
  return SwapInner(port_shape[0], port_shape[1], port_shape[2] * port_shape[3], values);
}

std::vector<float> ToPortOrder(const Shape& port_shape, absl::Span<const float> values) {
  if (!IsReordered(port_shape)) return {values.begin(), values.end()};
  return SwapInner(port_shape[0], port_shape[2] * port_shape[3], port_shape[1], values);
}

}  // namespace trainyard::engine::cuda
