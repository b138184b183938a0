// Loads and stores neighbouring elements at once, and converts them from and to f32. All kernels
// that move whole vectors do it by these functions. The caller knows that the address is a multiple
// of 16 bytes, or of the size of a smaller vector; elements at other addresses go one by one.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "worker/engine/backend/cuda/kernels/device.h"

namespace trainyard::engine::cuda {

// Elements that are loaded and stored together, 16 bytes at once if there are more.
template <class T, int count>
struct alignas(sizeof(T) * count < kVectorBytes ? sizeof(T) * count : kVectorBytes) Vector {
  T at[count];
};

// The elements of a vector while a kernel computes with them.
template <int count>
struct Floats {
  float at[count];
};

// Returns true if whole vectors may be accessed at `pointer`.
__host__ __device__ inline bool IsAligned(const void* pointer, int64_t bytes = kVectorBytes) {
  return reinterpret_cast<uintptr_t>(pointer) % static_cast<uint64_t>(bytes) == 0;
}

// Says whether data is used again soon. What is not is the first to leave the caches, so that it
// does not displace what is (ld.global.cs and st.global.cs).
enum class Reuse { kSoon, kLate };

// The words in which a vector is accessed with a hint.
template <class V>
using WordOf = std::conditional_t<
    alignof(V) == 16, uint4,
    std::conditional_t<alignof(V) == 8, uint2,
                       std::conditional_t<alignof(V) == 4, unsigned, unsigned short>>>;

template <int width, Reuse reuse = Reuse::kSoon, class T>
__device__ inline Vector<T, width> LoadVector(const T* from) {
  using V = Vector<T, width>;
  if constexpr (reuse == Reuse::kSoon) {
    return *reinterpret_cast<const V*>(from);
  } else {
    using Word = WordOf<V>;
    Word words[sizeof(V) / sizeof(Word)];
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(V) / sizeof(Word)); ++i) {
      words[i] = __ldcs(reinterpret_cast<const Word*>(from) + i);
    }
    V values;
    memcpy(&values, words, sizeof values);
    return values;
  }
}

template <Reuse reuse = Reuse::kSoon, class T, int width>
__device__ inline void StoreVector(T* to, Vector<T, width> values) {
  using V = Vector<T, width>;
  if constexpr (reuse == Reuse::kSoon) {
    *reinterpret_cast<V*>(to) = values;
  } else {
    using Word = WordOf<V>;
    Word words[sizeof(V) / sizeof(Word)];
    memcpy(words, &values, sizeof values);
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(V) / sizeof(Word)); ++i) {
      __stcs(reinterpret_cast<Word*>(to) + i, words[i]);
    }
  }
}

// Loads the first `count` elements one by one, each `step` after the one before. The others become
// `otherwise`.
template <int width, class T>
__device__ inline Vector<T, width> LoadElements(const T* from, int count, int64_t step = 1,
                                                T otherwise = FromFloat<T>(0)) {
  Vector<T, width> values;
#pragma unroll
  for (int i = 0; i < width; ++i) {
    values.at[i] = i < count ? from[i * step] : T(otherwise);
  }
  return values;
}

// Stores the first `count` elements one by one.
template <class T, int width>
__device__ inline void StoreElements(T* to, int count, const Vector<T, width>& values,
                                     int64_t step = 1) {
#pragma unroll
  for (int i = 0; i < width; ++i) {
    if (i < count) {
      to[i * step] = values.at[i];
    }
  }
}

template <class T, int width>
__device__ inline Floats<width> Unpack(const Vector<T, width>& stored) {
  Floats<width> values;
  if constexpr (std::is_same_v<T, __nv_bfloat16> && width % 2 == 0) {
    // A bf16 is the upper half of an f32. Two are taken out of each word as it was loaded, which
    // needs fewer registers than separate halves.
    uint32_t words[width / 2];
    memcpy(words, stored.at, sizeof words);
    uint32_t bits[width];
#pragma unroll
    for (int i = 0; i < width / 2; ++i) {
      bits[2 * i] = words[i] << 16;
      bits[2 * i + 1] = words[i] & 0xffff0000U;
    }
    memcpy(values.at, bits, sizeof bits);
  } else {
#pragma unroll
    for (int i = 0; i < width; ++i) {
      values.at[i] = ToFloat(stored.at[i]);
    }
  }
  return values;
}

// Returns two elements, which the GPU converts in one instruction.
template <class T>
__device__ inline auto PackPair(float a, float b) {
  if constexpr (std::is_same_v<T, __half>) {
    return __floats2half2_rn(a, b);
  } else {
    return __floats2bfloat162_rn(a, b);
  }
}

template <class T, int width>
__device__ inline Vector<T, width> Pack(const Floats<width>& values) {
  Vector<T, width> stored;
  if constexpr (std::is_same_v<T, float> || width % 2 != 0) {
#pragma unroll
    for (int i = 0; i < width; ++i) {
      stored.at[i] = FromFloat<T>(values.at[i]);
    }
  } else {
#pragma unroll
    for (int i = 0; i < width; i += 2) {
      const auto pair = PackPair<T>(values.at[i], values.at[i + 1]);
      stored.at[i] = pair.x;
      stored.at[i + 1] = pair.y;
    }
  }
  return stored;
}

template <int width>
__device__ inline void AddTo(Floats<width>& sum, const Floats<width>& values) {
#pragma unroll
  for (int i = 0; i < width; ++i) {
    sum.at[i] += values.at[i];
  }
}

// The number of elements that ForVectors takes at once.
inline constexpr int kFlatWidth = 4;

// Calls body(width, i) for elements [i, i + width) of [0, count): four at a time if the arrays are
// aligned, and one at a time for the rest. The width is a std::integral_constant. The thread does
// vectors `first`, first + step and so on.
template <class Index, class Body>
__device__ inline void ForVectors(Index first, Index step, Index count, bool is_aligned,
                                  const Body& body) {
  const Index vectors = is_aligned ? count / kFlatWidth : 0;
#pragma unroll 4
  for (Index i = first; i < vectors; i += step) {
    body(std::integral_constant<int, kFlatWidth>(), i * kFlatWidth);
  }
  for (Index i = vectors * kFlatWidth + first; i < count; i += step) {
    body(std::integral_constant<int, 1>(), i);
  }
}

}  // namespace trainyard::engine::cuda
