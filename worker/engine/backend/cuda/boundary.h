// Says how a value lies that crosses from one stage of a pipeline to the next, so that both
// stages find it in the same bytes.
#pragma once

#include <cstdint>

#include "worker/engine/backend/cuda/device/types.h"
#include "worker/engine/graph/graph.h"

namespace trainyard::engine::cuda {

// A matrix of pixels by channels, as kernels read and write it. Images and features have the
// padding of PaddedChannels, and sequences have none.
struct BoundaryLayout {
  int64_t pixels_per_row = 1;
  int64_t stride = 1;

  int64_t Bytes(int64_t rows, Type type) const {
    return rows * pixels_per_row * stride * SizeOf(type);
  }
};

inline BoundaryLayout LayOutBoundary(const Shape& shape, Type type) {
  if (shape.size() == 2) return {.pixels_per_row = shape[0], .stride = shape[1]};
  if (shape.size() == 3) {
    return {.pixels_per_row = shape[1] * shape[2], .stride = PaddedChannels(shape[0], type)};
  }
  return {.pixels_per_row = 1, .stride = PaddedChannels(shape.back(), type)};
}

}  // namespace trainyard::engine::cuda
