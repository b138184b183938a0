// Defines the vocabulary of the CUDA backend: the types in which elements are stored, and how
// values lie in device memory.
#pragma once

#include <cstdint>

namespace trainyard::engine::cuda {

// The type in which elements of activations are stored. Our own kernels always compute in f32.
enum class Type { kF32, kF16, kBf16 };

constexpr int64_t SizeOf(Type type) {
  return type == Type::kF32 ? 4 : 2;
}

// Channels of an image are padded to vectors of this many bytes, which cuDNN's fast kernels and
// ours load at once. The padding is always zero.
inline constexpr int64_t kVectorBytes = 16;
constexpr int64_t PaddedChannels(int64_t channels, Type type) {
  const int64_t vector = kVectorBytes / SizeOf(type);
  return (channels + vector - 1) / vector * vector;
}

// A value in device memory, as a matrix of pixels by channels. Pixels are rows x height x width of
// an image (NHWC), rows x positions of a sequence, or rows of features. Element (p, c) lies at
// data[p * stride + c]. The stride is larger than the number of channels if they are padded, or if
// the value is a part of a wider one (a slice, or a part of a concatenation); in that case the
// elements beyond the channels do not belong to it.
struct View {
  void* data = nullptr;  // null if it is not needed, or does not exist
  int64_t stride = 0;
  Type type = Type::kF32;

  explicit operator bool() const { return data != nullptr; }
};

// Images of a batch. Pixel (row, y, x) of a view is number ((row * height) + y) * width + x.
struct ImageShape {
  int64_t rows = 0;
  int64_t channels = 0;
  int64_t height = 1;
  int64_t width = 1;

  // Kernels call it too, which they may because it is constexpr.
  constexpr int64_t pixels() const { return rows * height * width; }
};

}  // namespace trainyard::engine::cuda
