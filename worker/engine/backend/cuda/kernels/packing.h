// Finds where elements of a parameter lie in its packed copy, and stores them there.
#pragma once

#include "worker/engine/backend/cuda/kernels/device.h"
#include "worker/engine/backend/cuda/kernels/packed_weight.h"

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

template <class T, int width>
__device__ inline void StoreAs(void* packed, int64_t at, const Vector<float, width>& values) {
  Vector<T, width> converted;
  for (int i = 0; i < width; ++i) {
    converted.at[i] = FromFloat<T>(values.at[i]);
  }
  *reinterpret_cast<Vector<T, width>*>(static_cast<T*>(packed) + at) = converted;
}

// `at` is a multiple of the width.
template <int width>
__device__ inline void StorePacked(void* packed, Type type, int64_t at,
                                   const Vector<float, width>& values) {
  switch (type) {
    case Type::kF32:
      StoreAs<float>(packed, at, values);
      return;
    case Type::kF16:
      StoreAs<__half>(packed, at, values);
      return;
    case Type::kBf16:
      StoreAs<__nv_bfloat16>(packed, at, values);
      return;
  }
}

}  // namespace trainyard::engine::cuda
