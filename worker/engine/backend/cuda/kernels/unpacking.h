// Unpacks the gradient of a parameter, for kernels that have blocks to spare for it.
#pragma once

#include <cstdint>

#include "worker/engine/backend/cuda/kernels/packed_weight.h"
#include "worker/engine/backend/cuda/kernels/packing.h"
#include "worker/engine/backend/cuda/kernels/vector.h"

namespace trainyard::engine::cuda {

template <int kThreads, class T>
__device__ void UnpackChunkOf(const PackedGradient& gradient, int64_t chunk) {
  const auto* packed = static_cast<const T*>(gradient.packed);
  const int64_t begin = chunk * kPackChunk;
  const int64_t rest = gradient.count - begin;
  const int elements = static_cast<int>(rest < kPackChunk ? rest : kPackChunk);
  const PackedRun run(gradient.inner, gradient.stride, begin);
  float* target = gradient.gradient + begin;
  const bool is_aligned = run.HoldsFours() && IsAligned(packed) && IsAligned(target);
  ForVectors(static_cast<int>(threadIdx.x), kThreads, elements, is_aligned, [&](auto width, int i) {
    auto values = Unpack(LoadVector<width(), Reuse::kLate>(packed + run.At(i)));
    if (gradient.adds) {
      AddTo(values, Unpack(LoadVector<width()>(target + i)));
    }
    StoreVector(target + i, Pack<float>(values));
  });
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
