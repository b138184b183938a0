// Defines how the host describes a parameter's place in a packed copy to the kernels that write it.
#pragma once

#include <cstdint>

#include "worker/engine/backend/cuda/device/types.h"

namespace trainyard::engine::cuda {

// One parameter's place in a packed copy: element i is packed[(i / inner) * stride + i % inner]. A
// packed copy may hold several parameters, with zeros between them.
struct PackedWeight {
  int64_t offset = 0;  // of the parameter in flat memory
  int64_t count = 0;
  int64_t inner = 1;  // the channels of a convolution's weight; otherwise all elements
  int64_t stride = 1;
  void* packed = nullptr;
  Type type = Type::kBf16;
};

// Packed copies are written in chunks of this many elements of a parameter.
inline constexpr int64_t kPackChunk = 4096;

// The gradient of a parameter in packed form: elements of `type`, in rows of `stride` of which
// `inner` are its own.
struct PackedGradient {
  const void* packed = nullptr;
  Type type = Type::kF32;
  int64_t inner = 1;
  int64_t stride = 1;
  int64_t count = 0;  // of its own elements; 0 stands for no gradient
  bool adds = false;  // to what is at `gradient`
  float* gradient = nullptr;

  int64_t chunks() const { return (count + kPackChunk - 1) / kPackChunk; }
};

}  // namespace trainyard::engine::cuda
