// Unpacks the gradient of a parameter, for kernels that have blocks to spare for it.
#pragma once

#include <cstdint>

#include "worker/engine/backend/cuda/kernels/device.h"
#include "worker/engine/backend/cuda/kernels/packed_weight.h"
#include "worker/engine/backend/cuda/kernels/packing.h"

namespace trainyard::engine::cuda {

__device__ inline bool IsAligned(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % kVectorBytes == 0;
}

template <int width, class T>
__device__ void Unpack(const T* packed, float* gradient, bool adds) {
  using Floats = Vector<float, width>;
  const auto stored = *reinterpret_cast<const Vector<T, width>*>(packed);
  Floats values;
  for (int i = 0; i < width; ++i) {
    values.at[i] = ToFloat(stored.at[i]);
  }
  if (adds) {
    const Floats sums = *reinterpret_cast<const Floats*>(gradient);
    for (int i = 0; i < width; ++i) {
      values.at[i] += sums.at[i];
    }
  }
  *reinterpret_cast<Floats*>(gradient) = values;
}

template <int kThreads, class T>
__device__ void UnpackChunkOf(const PackedGradient& gradient, int64_t chunk) {
  const auto* packed = static_cast<const T*>(gradient.packed);
  const int64_t begin = chunk * kPackChunk;
  const int64_t rest = gradient.count - begin;
  const int elements = static_cast<int>(rest < kPackChunk ? rest : kPackChunk);
  const PackedRun run(gradient.inner, gradient.stride, begin);
  float* target = gradient.gradient + begin;
  int done = 0;
  if (run.HoldsFours() && IsAligned(packed) && IsAligned(target)) {
    done = elements / 4 * 4;
    for (int i = static_cast<int>(threadIdx.x) * 4; i < done; i += kThreads * 4) {
      Unpack<4>(packed + run.At(i), target + i, gradient.adds);
    }
  }
  for (int i = done + static_cast<int>(threadIdx.x); i < elements; i += kThreads) {
    Unpack<1>(packed + run.At(i), target + i, gradient.adds);
  }
}

// Unpacks a chunk of kPackChunk elements. A block of kThreads threads calls it.
template <int kThreads>
__device__ void UnpackChunk(const PackedGradient& gradient, int64_t chunk) {
  switch (gradient.type) {
    case Type::kF32:
      return UnpackChunkOf<kThreads, float>(gradient, chunk);
    case Type::kF16:
      return UnpackChunkOf<kThreads, __half>(gradient, chunk);
    case Type::kBf16:
      return UnpackChunkOf<kThreads, __nv_bfloat16>(gradient, chunk);
  }
}

}  // namespace trainyard::engine::cuda
