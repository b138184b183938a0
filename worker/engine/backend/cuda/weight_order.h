// Converts the order of a convolution's weights: [K, R, S, C] on the device, and [K, C, R, S] at
// the port.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "worker/engine/graph/graph.h"

namespace trainyard::engine::cuda {

inline bool IsReordered(const Shape& port_shape) {
  return port_shape.size() == 4 && port_shape[1] > 1 && port_shape[2] * port_shape[3] > 1;
}

// These convert in each direction. Values and result have the shape's number of elements.
std::vector<float> ToDeviceOrder(const Shape& port_shape, absl::Span<const float> values);
std::vector<float> ToPortOrder(const Shape& port_shape, absl::Span<const float> values);

}  // namespace trainyard::engine::cuda
