// Finds where elements of a parameter lie in its packed copy, and stores them there.
#pragma once

#include "worker/engine/backend/cuda/kernels/packed_weight.h"
#include "worker/engine/backend/cuda/kernels/vector.h"

namespace trainyard::engine::cuda {

// The places of a run of at most kPackChunk elements. It takes one division of 64 bits for the run.
// The divisions for its elements have 32 bits, which GPUs do fast.
class PackedRun {
 public:
  // The run starts at element `begin` of the parameter.
  __device__ PackedRun(int64_t inner, int64_t stride, int64_t begin)
      : inner_(inner),
        stride_(stride),
        // A row that is longer than the run ends in it at most once, so its length does not matter
        // then.
        row_length_(static_cast<uint32_t>(inner < kPackChunk ? inner : kPackChunk)),
        row_(begin / inner * stride),
        column_(begin % inner) {}

  // Returns the place of element begin + index.
  __device__ int64_t At(int index) const {
    const int64_t column = column_ + index;
    if (column < inner_) {
      return row_ + column;
    }
    const auto beyond = static_cast<uint32_t>(column - inner_);
    const uint32_t rows = beyond / row_length_;
    return row_ + (1 + static_cast<int64_t>(rows)) * stride_ + (beyond - rows * row_length_);
  }
  // Returns true if every four elements from a multiple of four on are adjacent and aligned.
  __device__ bool HoldsFours() const {
    return inner_ % 4 == 0 && stride_ % 4 == 0 && column_ % 4 == 0;
  }

 private:
  int64_t inner_, stride_;
  uint32_t row_length_;
  int64_t row_, column_;
};

// `at` is a multiple of the width.
template <int width>
__device__ inline void StorePacked(void* packed, Type type, int64_t at,
                                   const Floats<width>& values) {
  switch (type) {
    case Type::kF32:
      StoreVector(static_cast<float*>(packed) + at, Pack<float>(values));
      return;
    case Type::kF16:
      StoreVector(static_cast<__half*>(packed) + at, Pack<__half>(values));
      return;
    case Type::kBf16:
      StoreVector(static_cast<__nv_bfloat16*>(packed) + at, Pack<__nv_bfloat16>(values));
      return;
  }
}

}  // namespace trainyard::engine::cuda
