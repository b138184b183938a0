// Atomics and arithmetic under CUDA's names, which must be global and spelled as in CUDA. Functions
// that the hardware approximates are exact here.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#include "tests/testing/cuda_on_cpu/grid.h"

// Atomics. Threads of a kernel take turns and stop only at barriers, so plain code is atomic.

namespace trainyard::cuda_on_cpu {
template <class T>
T Replace(T* address, T value) {
  const T old = *address;
  *address = value;
  return old;
}
}  // namespace trainyard::cuda_on_cpu

template <class T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
  return trainyard::cuda_on_cpu::Replace(address, static_cast<T>(*address + value));
}
template <class T>
T atomicSub(T* address, std::type_identity_t<T> value) {
  return trainyard::cuda_on_cpu::Replace(address, static_cast<T>(*address - value));
}
template <class T>
requires std::is_integral_v<T> T atomicMax(T* address, std::type_identity_t<T> value) {
  return trainyard::cuda_on_cpu::Replace(address, *address < value ? value : *address);
}
template <class T>
requires std::is_integral_v<T> T atomicMin(T* address, std::type_identity_t<T> value) {
  return trainyard::cuda_on_cpu::Replace(address, value < *address ? value : *address);
}
template <class T>
requires std::is_integral_v<T> T atomicCAS(T* address, std::type_identity_t<T> expected,
                                           std::type_identity_t<T> value) {
  return trainyard::cuda_on_cpu::Replace(address, *address == expected ? value : *address);
}
template <class T>
T atomicExch(T* address, std::type_identity_t<T> value) {
  return trainyard::cuda_on_cpu::Replace(address, value);
}
template <class T>
requires std::is_integral_v<T> T atomicOr(T* address, std::type_identity_t<T> value) {
  return trainyard::cuda_on_cpu::Replace(address, *address | value);
}
template <class T>
requires std::is_integral_v<T> T atomicAnd(T* address, std::type_identity_t<T> value) {
  return trainyard::cuda_on_cpu::Replace(address, *address & value);
}
template <class T>
requires std::is_integral_v<T> T atomicXor(T* address, std::type_identity_t<T> value) {
  return trainyard::cuda_on_cpu::Replace(address, *address ^ value);
}
// Counts up to `last` and then from 0 again.
inline unsigned atomicInc(unsigned* address, unsigned last) {
  return trainyard::cuda_on_cpu::Replace(address, *address >= last ? 0 : *address + 1);
}

// Loads and stores with a hint for the caches. The word may hold elements of another type, so it is
// copied as bytes.

namespace trainyard::cuda_on_cpu {
template <class T>
T LoadWord(const T* address) {
  CheckAligned(address, sizeof(T));
  T word;
  std::memcpy(&word, static_cast<const void*>(address), sizeof word);
  return word;
}
template <class T>
void StoreWord(T* address, T word) {
  CheckAligned(address, sizeof(T));
  std::memcpy(static_cast<void*>(address), &word, sizeof word);
}
}  // namespace trainyard::cuda_on_cpu

template <class T>
T __ldg(const T* address) {
  return trainyard::cuda_on_cpu::LoadWord(address);
}
template <class T>
T __ldcs(const T* address) {
  return trainyard::cuda_on_cpu::LoadWord(address);
}
template <class T>
T __ldcg(const T* address) {
  return trainyard::cuda_on_cpu::LoadWord(address);
}
template <class T>
void __stcs(T* address, std::type_identity_t<T> value) {
  trainyard::cuda_on_cpu::StoreWord(address, value);
}
template <class T>
void __stcg(T* address, std::type_identity_t<T> value) {
  trainyard::cuda_on_cpu::StoreWord(address, value);
}

// Integers.

inline int __popc(unsigned x) {
  return std::popcount(x);
}
inline int __popcll(unsigned long long x) {
  return std::popcount(x);
}
inline int __clz(int x) {
  return std::countl_zero(static_cast<unsigned>(x));
}
inline int __clzll(long long x) {
  return std::countl_zero(static_cast<unsigned long long>(x));
}
// The position of the lowest bit that is set, counted from 1; 0 if no bit is set.
inline int __ffs(int x) {
  return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1;
}
inline unsigned __brev(unsigned x) {
  unsigned reversed = 0;
  for (int bit = 0; bit < 32; ++bit) {
    reversed |= (x >> bit & 1) << (31 - bit);
  }
  return reversed;
}
inline unsigned __umulhi(unsigned x, unsigned y) {
  return static_cast<unsigned>((uint64_t{x} * y) >> 32);
}
inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<unsigned long long>((static_cast<Wide>(x) * y) >> 64);
}
inline int __mulhi(int x, int y) {
  return static_cast<int>((int64_t{x} * y) >> 32);
}

// CUDA's min and max take two values of one type, or mix signs and widths as arithmetic does.
template <class A, class B>
requires(std::is_arithmetic_v<A>&& std::is_arithmetic_v<B>) constexpr std::common_type_t<A, B> min(
    A a, B b) {
  using T = std::common_type_t<A, B>;
  if constexpr (std::is_floating_point_v<T>) {
    return std::fmin(static_cast<T>(a), static_cast<T>(b));
  } else {
    return static_cast<T>(b) < static_cast<T>(a) ? static_cast<T>(b) : static_cast<T>(a);
  }
}
template <class A, class B>
requires(std::is_arithmetic_v<A>&& std::is_arithmetic_v<B>) constexpr std::common_type_t<A, B> max(
    A a, B b) {
  using T = std::common_type_t<A, B>;
  if constexpr (std::is_floating_point_v<T>) {
    return std::fmax(static_cast<T>(a), static_cast<T>(b));
  } else {
    return static_cast<T>(a) < static_cast<T>(b) ? static_cast<T>(b) : static_cast<T>(a);
  }
}

// Floats.

inline float rsqrtf(float x) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(x)));
}
inline double rsqrt(double x) {
  return 1.0 / std::sqrt(x);
}
inline float __expf(float x) {
  return std::exp(x);
}
inline float __exp10f(float x) {
  return std::pow(10.0F, x);
}
inline float __logf(float x) {
  return std::log(x);
}
inline float __log2f(float x) {
  return std::log2(x);
}
inline float __powf(float x, float y) {
  return std::pow(x, y);
}
inline float __sinf(float x) {
  return std::sin(x);
}
inline float __cosf(float x) {
  return std::cos(x);
}
inline float __tanf(float x) {
  return std::tan(x);
}
inline float __fdividef(float x, float y) {
  return x / y;
}
inline float __fdiv_rn(float x, float y) {
  return x / y;
}
inline float __frcp_rn(float x) {
  return 1.0F / x;
}
inline float __fsqrt_rn(float x) {
  return std::sqrt(x);
}
inline float __frsqrt_rn(float x) {
  return rsqrtf(x);
}
inline float __fmaf_rn(float x, float y, float z) {
  return std::fma(x, y, z);
}
inline float __fadd_rn(float x, float y) {
  return x + y;
}
inline float __fsub_rn(float x, float y) {
  return x - y;
}
inline float __fmul_rn(float x, float y) {
  return x * y;
}
inline double __dadd_rn(double x, double y) {
  return x + y;
}
inline double __dmul_rn(double x, double y) {
  return x * y;
}
inline float __saturatef(float x) {
  return x > 0.0F ? std::fmin(x, 1.0F) : 0.0F;
}

// Conversions between numbers and their bits, and between types.

inline unsigned __float_as_uint(float x) {
  return std::bit_cast<unsigned>(x);
}
inline int __float_as_int(float x) {
  return std::bit_cast<int>(x);
}
inline float __uint_as_float(unsigned x) {
  return std::bit_cast<float>(x);
}
inline float __int_as_float(int x) {
  return std::bit_cast<float>(x);
}
inline long long __double_as_longlong(double x) {
  return std::bit_cast<long long>(x);
}
inline double __longlong_as_double(long long x) {
  return std::bit_cast<double>(x);
}
inline float __int2float_rn(int x) {
  return static_cast<float>(x);
}
inline float __uint2float_rn(unsigned x) {
  return static_cast<float>(x);
}
inline int __float2int_rn(float x) {
  return static_cast<int>(std::nearbyint(x));
}
inline int __float2int_rz(float x) {
  return static_cast<int>(x);
}
inline int __float2int_rd(float x) {
  return static_cast<int>(std::floor(x));
}
inline int __float2int_ru(float x) {
  return static_cast<int>(std::ceil(x));
}

[[noreturn]] inline void __trap() {
  std::abort();
}
