// Loads and stores eight neighbouring channels of a pixel, which a thread of a memory-bound kernel
// holds at a time. If the view is aligned for it, 16 bytes of 16-bit elements are loaded and stored
// at once. Otherwise, and at the end of the channels, the same kernel goes element by element.
#pragma once

#include <cstdint>
#include <type_traits>

#include "worker/engine/backend/cuda/kernels/vector.h"

namespace trainyard::engine::cuda {

inline constexpr int kLanes = 8;

// The element type of a kernel whose views have several types. Each view's type is checked when it
// is read or written.
struct MixedTypes {};

// A View as kernels take it.
struct Operand {
  void* data = nullptr;
  int64_t stride = 0;
  Type type = Type::kF32;
  // True if all groups that begin at a multiple of eight channels lie at multiples of kVectorBytes.
  bool is_aligned = false;
  // The number of channels that are written, which is more than the op's if the padding is cleared.
  int64_t written = 0;

  __host__ __device__ explicit operator bool() const { return data != nullptr; }
};

inline bool IsAligned(const View& view) {
  return IsAligned(view.data) && view.stride * SizeOf(view.type) % kVectorBytes == 0;
}

// Returns the operand for a view that is read.
inline Operand Input(const View& view) {
  return {view.data, view.stride, view.type, IsAligned(view), 0};
}
// Returns the operand for a view whose `channels` are written, and whose padding, if it has any, is
// cleared with `clears_padding`.
inline Operand Output(const View& view, int64_t channels, bool clears_padding) {
  const int64_t padded = PaddedChannels(channels, view.type);
  return {view.data, view.stride, view.type, IsAligned(view),
          clears_padding && view.stride >= padded ? padded : channels};
}

constexpr int64_t LaneGroups(int64_t channels) {
  return (channels + kLanes - 1) / kLanes;
}

// Calls `body` with a null pointer to the element type that all views have, or to MixedTypes. Views
// without data are ignored.
template <class Body, class... Views>
void WithTypeOf(const Body& body, const View& first, const Views&... others) {
  const bool is_same = ((!others || others.type == first.type) && ...);
  if (is_same) {
    WithType(first.type, body);
  } else {
    body(static_cast<MixedTypes*>(nullptr));
  }
}

// Calls `body` with a null pointer to the element type of all views if all groups are whole and
// loaded at once. Otherwise it passes one to MixedTypes, so that kernels keep the slow case apart.
template <class Body, class... Views>
void WithVectorType(const Body& body, int64_t channels, const View& first, const Views&... others) {
  const bool is_vector = channels % kLanes == 0 && IsAligned(first) &&
                         ((!others || (others.type == first.type && IsAligned(others))) && ...);
  if (is_vector) {
    WithType(first.type, body);
  } else {
    body(static_cast<MixedTypes*>(nullptr));
  }
}
template <class T>
inline constexpr bool kIsVector = !std::is_same_v<T, MixedTypes>;

// Reads one element of a view, whatever its type. All threads take the same branch.
__device__ inline float LoadElement(const Operand& from, int64_t pixel, int64_t channel) {
  const int64_t at = pixel * from.stride + channel;
  switch (from.type) {
    case Type::kF16:
      return ToFloat(static_cast<const __half*>(from.data)[at]);
    case Type::kBf16:
      return ToFloat(static_cast<const __nv_bfloat16*>(from.data)[at]);
    default:
      return static_cast<const float*>(from.data)[at];
  }
}
__device__ inline void StoreElement(const Operand& to, int64_t pixel, int64_t channel,
                                    float value) {
  const int64_t at = pixel * to.stride + channel;
  switch (to.type) {
    case Type::kF16:
      static_cast<__half*>(to.data)[at] = FromFloat<__half>(value);
      return;
    case Type::kBf16:
      static_cast<__nv_bfloat16*>(to.data)[at] = FromFloat<__nv_bfloat16>(value);
      return;
    default:
      static_cast<float*>(to.data)[at] = value;
  }
}

using Float8 = Floats<kLanes>;

// Eight elements as they are stored, or as f32 if the type is known only when they are loaded.
template <class T>
using Lanes = Vector<std::conditional_t<kIsVector<T>, T, float>, kLanes>;

// Returns the number of elements, in [0, 8], that the group at `channel` has.
__device__ inline int LaneCount(int64_t channels, int64_t channel) {
  const int64_t left = channels - channel;
  return left < kLanes ? static_cast<int>(left) : kLanes;
}

template <class T>
__device__ inline Lanes<MixedTypes> LoadMixed(const Operand& from, int64_t at, int count) {
  return Pack<float>(Unpack(LoadElements<kLanes>(static_cast<const T*>(from.data) + at, count)));
}

// Loads elements [channel, channel + count) of a pixel, followed by zeros. If count is 8, `channel`
// is a multiple of 8. kIsFull says that count is 8 and the view is aligned, so the compiler can
// drop the other case.
template <class T, bool kIsFull = false>
__device__ inline Lanes<T> LoadLanes(const Operand& from, int64_t pixel, int64_t channel,
                                     int count) {
  const int64_t at = pixel * from.stride + channel;
  if constexpr (std::is_same_v<T, MixedTypes>) {
    switch (from.type) {
      case Type::kF16:
        return LoadMixed<__half>(from, at, count);
      case Type::kBf16:
        return LoadMixed<__nv_bfloat16>(from, at, count);
      default:
        return LoadMixed<float>(from, at, count);
    }
  } else {
    const T* data = static_cast<const T*>(from.data) + at;
    if (kIsFull || (from.is_aligned && count == kLanes)) {
      return LoadVector<kLanes>(data);
    }
    return LoadElements<kLanes>(data, count);
  }
}

template <class T>
__device__ inline void StoreMixed(const Operand& to, int64_t at, int written,
                                  const Float8& values) {
  StoreElements(static_cast<T*>(to.data) + at, written, Pack<T>(values));
}

// Writes elements [channel, channel + count) of a pixel, then zeros as far as `to.written` reaches
// in this group. kIsFull says that count is 8 and the view is aligned.
template <class T, bool kIsFull = false>
__device__ inline void StoreLanes(const Operand& to, int64_t pixel, int64_t channel, int count,
                                  Float8 values) {
  const int written = kIsFull ? kLanes : LaneCount(to.written, channel);
  const int64_t at = pixel * to.stride + channel;
  if (!kIsFull && count < kLanes) {
#pragma unroll
    for (int i = 0; i < kLanes; ++i) {
      values.at[i] = i < count ? values.at[i] : 0.0F;
    }
  }
  if constexpr (std::is_same_v<T, MixedTypes>) {
    switch (to.type) {
      case Type::kF16:
        return StoreMixed<__half>(to, at, written, values);
      case Type::kBf16:
        return StoreMixed<__nv_bfloat16>(to, at, written, values);
      default:
        return StoreMixed<float>(to, at, written, values);
    }
  } else {
    T* data = static_cast<T*>(to.data) + at;
    if (kIsFull || (to.is_aligned && written == kLanes)) {
      StoreVector(data, Pack<T>(values));
    } else {
      StoreElements(data, written, Pack<T>(values));
    }
  }
}

}  // namespace trainyard::engine::cuda
