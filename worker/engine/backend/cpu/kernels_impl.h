// Included by kernels_<set>.cc, once for each instruction set, with TY_KERNEL_SET and
// TY_KERNEL_NAME defined. No pragma once, and no header with inline code.
//
// Vectors are GCC's: Lanes<B> is B floats, which the compiler maps to registers of the set.
#include "worker/engine/backend/cpu/kernels.h"

namespace trainyard::engine::cpu {
namespace {

template <int B>
struct Vector {
  typedef float Float __attribute__((vector_size(B * sizeof(float))));
  typedef int32_t Int __attribute__((vector_size(B * sizeof(int32_t))));
  typedef uint8_t Byte __attribute__((vector_size(B)));
};

// One lane, so that plain layouts share the code.
template <>
struct Vector<1> {
  typedef float Float;
  typedef int32_t Int;
  typedef uint8_t Byte;
};

template <int B>
using Float = typename Vector<B>::Float;

template <int B>
inline Float<B> Load(const float* p) {
  Float<B> v;
  __builtin_memcpy(&v, p, sizeof(v));
  return v;
}

template <int B>
inline void Store(float* p, Float<B> v) {
  __builtin_memcpy(p, &v, sizeof(v));
}

template <int B>
inline Float<B> Splat(float value) {
  if constexpr (B == 1) {
    return value;
  } else {
    return Float<B>{} + value;
  }
}

void Relu(const float* x, float* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    y[i] = x[i] < 0 ? 0.0f : x[i];
  }
}

void ReluGradient(const float* dy, const float* y, float* dx, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const float g = dy[i];
    dx[i] = y[i] > 0 ? g : 0.0f;
  }
}

void Add(const float* a, const float* b, float* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    y[i] = a[i] + b[i];
  }
}

template <bool has_momentum, bool nesterov>
bool SgdLoop(const SgdRule& rule, float* __restrict parameter, float* __restrict momentum,
             float* __restrict gradient, int64_t count) {
  const float lr = rule.lr;
  const float mu = rule.momentum;
  const float decay = rule.weight_decay;
  // All exponent bits set: NaN or infinite. In integers, as sums of floats would not vectorise.
  constexpr int32_t kExponent = 0x7f800000;
  int32_t is_spoiled = 0;
  for (int64_t i = 0; i < count; ++i) {
    int32_t bits;
    __builtin_memcpy(&bits, gradient + i, sizeof(bits));
    is_spoiled |= (bits & kExponent) == kExponent ? 1 : 0;
    const float g = gradient[i] + decay * parameter[i];
    gradient[i] = 0;
    if constexpr (has_momentum) {
      const float m = mu * momentum[i] + g;
      momentum[i] = m;
      parameter[i] -= lr * (nesterov ? g + mu * m : m);
    } else {
      parameter[i] -= lr * g;
    }
  }
  return is_spoiled == 0;
}

bool Sgd(const SgdRule& rule, float* parameter, float* momentum, float* gradient, int64_t count) {
  if (momentum == nullptr) {
    return SgdLoop<false, false>(rule, parameter, momentum, gradient, count);
  }
  if (rule.nesterov) {
    return SgdLoop<true, true>(rule, parameter, momentum, gradient, count);
  }
  return SgdLoop<true, false>(rule, parameter, momentum, gradient, count);
}

// The part of a window that lies inside the plane, along one axis.
struct Range {
  int64_t begin, end;
};

inline Range Clip(int64_t out, int64_t kernel, int64_t stride, int64_t padding, int64_t size) {
  const int64_t start = out * stride - padding;
  Range range = {0, kernel};
  if (start < 0) {
    range.begin = -start;
  }
  if (start + kernel > size) {
    range.end = size - start;
  }
  return range;
}

// The maximum of a window's part and its position; `kernel` 0 or the window's known size.
template <int B, int kernel>
inline void MaxOfWindow(const PoolShape& s, const float* window, Range rows, Range columns,
                        Float<B>& best, typename Vector<B>::Int& at) {
  typedef typename Vector<B>::Int Int;
  const int64_t k = kernel > 0 ? kernel : s.kernel;
  best = Load<B>(window + (rows.begin * s.width + columns.begin) * B);
  at = Int{} + static_cast<int32_t>(rows.begin * k + columns.begin);
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    for (int64_t j = columns.begin; j < columns.end; ++j) {
      const Float<B> v = Load<B>(window + (i * s.width + j) * B);
      // Larger, or a NaN, which counts as largest.
      const auto is_new = !(v <= best);
      at = is_new ? Int{} + static_cast<int32_t>(i * k + j) : at;
      best = is_new ? v : best;
    }
  }
}

template <int B, int kernel>
void MaxPoolPlane(const PoolShape& s, const float* x, float* y, uint8_t* index, bool relu) {
  typedef typename Vector<B>::Int Int;
  const int64_t k = kernel > 0 ? kernel : s.kernel;
  for (int64_t oh = 0; oh < s.out_height; ++oh) {
    const Range rows = Clip(oh, k, s.stride, s.padding, s.height);
    for (int64_t ow = 0; ow < s.out_width; ++ow) {
      const Range columns = Clip(ow, k, s.stride, s.padding, s.width);
      const float* window =
          x + ((oh * s.stride - s.padding) * s.width + ow * s.stride - s.padding) * B;
      Float<B> best;
      Int at;
      if (kernel > 0 && rows.end - rows.begin == kernel && columns.end - columns.begin == kernel) {
        // Whole: the loops unroll.
        MaxOfWindow<B, kernel>(s, window, {0, kernel}, {0, kernel}, best, at);
      } else {
        MaxOfWindow<B, 0>(s, window, rows, columns, best, at);
      }
      const int64_t out = (oh * s.out_width + ow) * B;
      Store<B>(y + out, best);
      if (index != nullptr) {
        if (relu) {
          at = best > Splat<B>(0) ? at : Int{} + int32_t{kNoMaximum};
        }
        if constexpr (B == 1) {
          index[out] = static_cast<uint8_t>(at);
        } else {
          const auto bytes = __builtin_convertvector(at, typename Vector<B>::Byte);
          __builtin_memcpy(index + out, &bytes, B);
        }
      }
    }
  }
}

// `window` covers each input once: every input element is written, none added to.
inline bool Tiles(const PoolShape& s) {
  return s.stride == s.kernel && s.padding == 0 && s.out_height * s.kernel == s.height &&
         s.out_width * s.kernel == s.width;
}

inline void Zero(float* x, int64_t count) {
  __builtin_memset(x, 0, static_cast<unsigned long>(count) * sizeof(float));
}

// Spreads g over a window's part: to where `at` points, nothing elsewhere.
template <int B, int kernel, bool add>
inline void SpreadOverWindow(const PoolShape& s, Float<B> g, typename Vector<B>::Int at, Range rows,
                             Range columns, float* window) {
  typedef typename Vector<B>::Int Int;
  const int64_t k = kernel > 0 ? kernel : s.kernel;
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    for (int64_t j = columns.begin; j < columns.end; ++j) {
      float* target = window + (i * s.width + j) * B;
      const Int position = Int{} + static_cast<int32_t>(i * k + j);
      const Float<B> part = at == position ? g : Splat<B>(0);
      Store<B>(target, add ? Load<B>(target) + part : part);
    }
  }
}

template <int B, int kernel, bool tiles>
void MaxPoolGradientPlane(const PoolShape& s, const float* dy, const uint8_t* index, float* dx) {
  typedef typename Vector<B>::Int Int;
  const int64_t k = kernel > 0 ? kernel : s.kernel;
  for (int64_t oh = 0; oh < s.out_height; ++oh) {
    const Range rows = Clip(oh, k, s.stride, s.padding, s.height);
    for (int64_t ow = 0; ow < s.out_width; ++ow) {
      const Range columns = Clip(ow, k, s.stride, s.padding, s.width);
      float* window = dx + ((oh * s.stride - s.padding) * s.width + ow * s.stride - s.padding) * B;
      const int64_t out = (oh * s.out_width + ow) * B;
      const Float<B> g = Load<B>(dy + out);
      Int at;
      if constexpr (B == 1) {
        at = index[out];
      } else {
        typename Vector<B>::Byte bytes;
        __builtin_memcpy(&bytes, index + out, B);
        at = __builtin_convertvector(bytes, Int);
      }
      if (kernel > 0 && tiles) {
        SpreadOverWindow<B, kernel, false>(s, g, at, {0, kernel}, {0, kernel}, window);
      } else {
        SpreadOverWindow<B, 0, !tiles>(s, g, at, rows, columns, window);
      }
    }
  }
}

template <int B>
void AvgPoolPlane(const PoolShape& s, const float* x, float* y) {
  const float share = 1.0f / static_cast<float>(s.kernel * s.kernel);
  for (int64_t oh = 0; oh < s.out_height; ++oh) {
    const Range rows = Clip(oh, s.kernel, s.stride, s.padding, s.height);
    for (int64_t ow = 0; ow < s.out_width; ++ow) {
      const Range columns = Clip(ow, s.kernel, s.stride, s.padding, s.width);
      const float* window =
          x + ((oh * s.stride - s.padding) * s.width + ow * s.stride - s.padding) * B;
      Float<B> sum = Splat<B>(0);
      for (int64_t i = rows.begin; i < rows.end; ++i) {
        for (int64_t j = columns.begin; j < columns.end; ++j) {
          sum += Load<B>(window + (i * s.width + j) * B);
        }
      }
      Store<B>(y + (oh * s.out_width + ow) * B, sum * share);
    }
  }
}

template <int B>
void AvgPoolGradientPlane(const PoolShape& s, const float* dy, float* dx) {
  const float share = 1.0f / static_cast<float>(s.kernel * s.kernel);
  Zero(dx, s.height * s.width * B);
  for (int64_t oh = 0; oh < s.out_height; ++oh) {
    const Range rows = Clip(oh, s.kernel, s.stride, s.padding, s.height);
    for (int64_t ow = 0; ow < s.out_width; ++ow) {
      const Range columns = Clip(ow, s.kernel, s.stride, s.padding, s.width);
      float* window = dx + ((oh * s.stride - s.padding) * s.width + ow * s.stride - s.padding) * B;
      const Float<B> g = Load<B>(dy + (oh * s.out_width + ow) * B) * share;
      for (int64_t i = rows.begin; i < rows.end; ++i) {
        for (int64_t j = columns.begin; j < columns.end; ++j) {
          float* target = window + (i * s.width + j) * B;
          Store<B>(target, Load<B>(target) + g);
        }
      }
    }
  }
}

template <int B>
void MeanPlane(int64_t plane, const float* x, float* y) {
  Float<B> sum = Splat<B>(0);
  for (int64_t i = 0; i < plane; ++i) {
    sum += Load<B>(x + i * B);
  }
  Store<B>(y, sum * (1.0f / static_cast<float>(plane)));
}

template <int B>
void MeanGradientPlane(int64_t plane, const float* dy, float* dx) {
  const Float<B> g = Load<B>(dy) * (1.0f / static_cast<float>(plane));
  for (int64_t i = 0; i < plane; ++i) {
    Store<B>(dx + i * B, g);
  }
}

template <int B>
void MomentsPlane(int64_t plane, const float* x, float* mean, float* distances) {
  // Two sums each, to keep two additions in flight.
  Float<B> sum0 = Splat<B>(0);
  Float<B> sum1 = Splat<B>(0);
  int64_t i = 0;
  for (; i + 1 < plane; i += 2) {
    sum0 += Load<B>(x + i * B);
    sum1 += Load<B>(x + (i + 1) * B);
  }
  for (; i < plane; ++i) {
    sum0 += Load<B>(x + i * B);
  }
  const Float<B> m = (sum0 + sum1) * (1.0f / static_cast<float>(plane));
  Float<B> square0 = Splat<B>(0);
  Float<B> square1 = Splat<B>(0);
  for (i = 0; i + 1 < plane; i += 2) {
    const Float<B> d0 = Load<B>(x + i * B) - m;
    const Float<B> d1 = Load<B>(x + (i + 1) * B) - m;
    square0 += d0 * d0;
    square1 += d1 * d1;
  }
  for (; i < plane; ++i) {
    const Float<B> d = Load<B>(x + i * B) - m;
    square0 += d * d;
  }
  Store<B>(mean, m);
  Store<B>(distances, square0 + square1);
}

template <int B>
void NormalizePlane(int64_t plane, const float* x, const float* scale, const float* shift,
                    bool relu, float* y) {
  const Float<B> a = Load<B>(scale);
  const Float<B> b = Load<B>(shift);
  if (relu) {
    for (int64_t i = 0; i < plane; ++i) {
      const Float<B> v = Load<B>(x + i * B) * a + b;
      Store<B>(y + i * B, v < Splat<B>(0) ? Splat<B>(0) : v);
    }
  } else {
    for (int64_t i = 0; i < plane; ++i) {
      Store<B>(y + i * B, Load<B>(x + i * B) * a + b);
    }
  }
}

// dy, masked by the sign of what normalize made of x.
template <int B, bool masked>
inline Float<B> Masked(Float<B> dy, Float<B> x, Float<B> scale, Float<B> shift) {
  if constexpr (masked) {
    return x * scale + shift > Splat<B>(0) ? dy : Splat<B>(0);
  }
  return dy;
}

template <int B, bool masked>
void NormGradientSumsLoop(int64_t plane, const float* dy, const float* x, Float<B> scale,
                          Float<B> shift, const float* mean, float* sum, float* sum_x) {
  const Float<B> m = Load<B>(mean);
  Float<B> total = Splat<B>(0);
  Float<B> total_x = Splat<B>(0);
  for (int64_t i = 0; i < plane; ++i) {
    const Float<B> v = Load<B>(x + i * B);
    const Float<B> g = Masked<B, masked>(Load<B>(dy + i * B), v, scale, shift);
    total += g;
    total_x += g * (v - m);
  }
  Store<B>(sum, total);
  Store<B>(sum_x, total_x);
}

template <int B>
void NormGradientSumsPlane(int64_t plane, const float* dy, const float* x, const float* scale,
                           const float* shift, const float* mean, float* sum, float* sum_x) {
  if (scale != nullptr) {
    NormGradientSumsLoop<B, true>(plane, dy, x, Load<B>(scale), Load<B>(shift), mean, sum, sum_x);
  } else {
    NormGradientSumsLoop<B, false>(plane, dy, x, Splat<B>(0), Splat<B>(0), mean, sum, sum_x);
  }
}

template <int B, bool masked>
void NormGradientLoop(int64_t plane, const float* dy, const float* x, Float<B> scale,
                      Float<B> shift, const float* a, const float* b, const float* c, float* dx) {
  const Float<B> va = Load<B>(a);
  const Float<B> vb = Load<B>(b);
  const Float<B> vc = Load<B>(c);
  for (int64_t i = 0; i < plane; ++i) {
    const Float<B> v = Load<B>(x + i * B);
    const Float<B> g = Masked<B, masked>(Load<B>(dy + i * B), v, scale, shift);
    Store<B>(dx + i * B, g * va + (v * vb + vc));
  }
}

template <int B>
void NormGradientPlane(int64_t plane, const float* dy, const float* x, const float* scale,
                       const float* shift, const float* a, const float* b, const float* c,
                       float* dx) {
  if (scale != nullptr) {
    NormGradientLoop<B, true>(plane, dy, x, Load<B>(scale), Load<B>(shift), a, b, c, dx);
  } else {
    NormGradientLoop<B, false>(plane, dy, x, Splat<B>(0), Splat<B>(0), a, b, c, dx);
  }
}

// Picks the template by block (the port allows 1, 8 and 16).
#define TY_BY_BLOCK(function, ...) \
  switch (block) {                 \
    case 16:                       \
      function<16>(__VA_ARGS__);   \
      break;                       \
    case 8:                        \
      function<8>(__VA_ARGS__);    \
      break;                       \
    default:                       \
      function<1>(__VA_ARGS__);    \
      break;                       \
  }

// Windows of 2 and 3 get unrolled loops.
template <int B>
void MaxPoolBlock(const PoolShape& s, const float* x, float* y, uint8_t* index, bool relu) {
  if (s.kernel == 2) {
    MaxPoolPlane<B, 2>(s, x, y, index, relu);
  } else if (s.kernel == 3) {
    MaxPoolPlane<B, 3>(s, x, y, index, relu);
  } else {
    MaxPoolPlane<B, 0>(s, x, y, index, relu);
  }
}

template <int B>
void MaxPoolGradientBlock(const PoolShape& s, const float* dy, const uint8_t* index, float* dx) {
  if (!Tiles(s)) {
    Zero(dx, s.height * s.width * B);
    MaxPoolGradientPlane<B, 0, false>(s, dy, index, dx);
  } else if (s.kernel == 2) {
    MaxPoolGradientPlane<B, 2, true>(s, dy, index, dx);
  } else {
    MaxPoolGradientPlane<B, 0, true>(s, dy, index, dx);
  }
}

void MaxPool(const PoolShape& s, int64_t block, const float* x, float* y, uint8_t* index,
             bool relu) {
  TY_BY_BLOCK(MaxPoolBlock, s, x, y, index, relu)
}

void MaxPoolGradient(const PoolShape& s, int64_t block, const float* dy, const uint8_t* index,
                     float* dx) {
  TY_BY_BLOCK(MaxPoolGradientBlock, s, dy, index, dx)
}

void AvgPool(const PoolShape& s, int64_t block, const float* x, float* y) {
  TY_BY_BLOCK(AvgPoolPlane, s, x, y)
}

void AvgPoolGradient(const PoolShape& s, int64_t block, const float* dy, float* dx) {
  TY_BY_BLOCK(AvgPoolGradientPlane, s, dy, dx)
}

void Mean(int64_t plane, int64_t block, const float* x, float* y) {
  TY_BY_BLOCK(MeanPlane, plane, x, y)
}

void MeanGradient(int64_t plane, int64_t block, const float* dy, float* dx) {
  TY_BY_BLOCK(MeanGradientPlane, plane, dy, dx)
}

void Moments(int64_t plane, int64_t block, const float* x, float* mean, float* distances) {
  TY_BY_BLOCK(MomentsPlane, plane, x, mean, distances)
}

void Normalize(int64_t plane, int64_t block, const float* x, const float* scale, const float* shift,
               bool relu, float* y) {
  TY_BY_BLOCK(NormalizePlane, plane, x, scale, shift, relu, y)
}

void NormGradientSums(int64_t plane, int64_t block, const float* dy, const float* x,
                      const float* scale, const float* shift, const float* mean, float* sum,
                      float* sum_x) {
  TY_BY_BLOCK(NormGradientSumsPlane, plane, dy, x, scale, shift, mean, sum, sum_x)
}

void NormGradient(int64_t plane, int64_t block, const float* dy, const float* x, const float* scale,
                  const float* shift, const float* a, const float* b, const float* c, float* dx) {
  TY_BY_BLOCK(NormGradientPlane, plane, dy, x, scale, shift, a, b, c, dx)
}

#undef TY_BY_BLOCK

}  // namespace

const Kernels TY_KERNEL_SET = {
    TY_KERNEL_NAME,
    Relu,
    ReluGradient,
    Add,
    Sgd,
    MaxPool,
    MaxPoolGradient,
    AvgPool,
    AvgPoolGradient,
    Mean,
    MeanGradient,
    Moments,
    Normalize,
    NormGradientSums,
    NormGradient,
};

}  // namespace trainyard::engine::cpu
