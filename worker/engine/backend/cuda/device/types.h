// The words of the CUDA backend: what elements are stored in, and how values lie in device memory.
#pragma once

#include <cstdint>

namespace trainyard::engine::cuda {

// What elements of activations are stored in. Arithmetic of our own kernels is f32 always.
enum class Type { kF32, kF16, kBf16 };

constexpr int64_t SizeOf(Type type) {
  return type == Type::kF32 ? 4 : 2;
}

// Channels of an image are padded to vectors of so many bytes: what cuDNN's fast kernels, and
// ours, load at once. The padding is zero always.
inline constexpr int64_t kVectorBytes = 16;
constexpr int64_t PaddedChannels(int64_t channels, Type type) {
  const int64_t vector = kVectorBytes / SizeOf(type);
  return (channels + vector - 1) / vector * vector;
}

// A value in device memory, as a matrix: pixels (rows x height x width of an image, NHWC; rows x
// positions of a sequence; rows of features) by channels. Element (p, c) lies at data[p * stride +
// c]. The stride is wider than the channels where they are padded, and where the value is a part
// of a wider one (a slice, or a part of a concatenation): then what lies beyond the channels is
// not its own.
struct View {
  void* data = nullptr;  // null: not wanted, or not there
  int64_t stride = 0;
  Type type = Type::kF32;

  explicit operator bool() const { return data != nullptr; }
};

// Images of a batch. Pixels of a view: ((row * height) + y) * width + x.
struct ImageShape {
  int64_t rows = 0;
  int64_t channels = 0;
  int64_t height = 1;
  int64_t width = 1;

  int64_t pixels() const { return rows * height * width; }
};

}  // namespace trainyard::engine::cuda
