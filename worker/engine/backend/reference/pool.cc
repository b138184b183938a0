// Computes pooling, as plain loops.
#include <algorithm>
#include <cmath>

#include "worker/engine/backend/reference/kernels.h"

namespace trainyard::engine::reference {
namespace {

// Calls visit(output position, position in the window, input position) for every element of every
// pooling window that is not padding. x: [C, H, W], y: [C, H', W'].
template <class Visit>
void ForEachInWindows(const PoolAttributes& pool, int64_t planes, const Shape& x, const Shape& y,
                      const Visit& visit) {
  for (int64_t p = 0; p < planes; ++p) {
    for (int64_t oh = 0; oh < y[1]; ++oh) {
      for (int64_t ow = 0; ow < y[2]; ++ow) {
        for (int64_t i = 0; i < pool.kernel; ++i) {
          for (int64_t j = 0; j < pool.kernel; ++j) {
            const int64_t h = oh * pool.stride + i - pool.padding;
            const int64_t v = ow * pool.stride + j - pool.padding;
            if (h >= 0 && h < x[1] && v >= 0 && v < x[2]) {
              visit((p * y[1] + oh) * y[2] + ow, i * pool.kernel + j, (p * x[1] + h) * x[2] + v);
            }
          }
        }
      }
    }
  }
}

constexpr int kNoMaximum = -1;

template <class T>
void MaxPool(const Operands<T>& o) {
  const T* x = o.inputs[0];
  T* y = o.outputs[0];
  const Shape& out = o.output_shape(0);
  const int64_t count = o.rows * ElementCount(out);
  std::vector<T> index(static_cast<size_t>(count), T{kNoMaximum});
  ForEachInWindows(o.node.pool(), o.rows * out[0], o.input_shape(0), out,
                   [&](int64_t yi, int64_t position, int64_t xi) {
                     T& at = index[static_cast<size_t>(yi)];
                     if (at == kNoMaximum || x[xi] > y[yi] || std::isnan(x[xi])) {
                       at = static_cast<T>(position);
                       y[yi] = x[xi];
                     }
                   });
  if (o.outputs[1] != nullptr) {
    for (int64_t i = 0; i < count; ++i) {
      const bool blocked = o.node.relu && !(y[i] > 0);
      o.outputs[1][i] = blocked ? T{kNoMaximum} : index[static_cast<size_t>(i)];
    }
  }
}

template <class T>
void MaxPoolGradient(const Operands<T>& o) {
  const Shape& x = o.output_shape(0);
  std::fill_n(o.outputs[0], o.rows * ElementCount(x), T{0});
  ForEachInWindows(o.node.pool(), o.rows * x[0], x, o.input_shape(0),
                   [&](int64_t yi, int64_t position, int64_t xi) {
                     if (o.inputs[1][yi] == static_cast<T>(position)) {
                       o.outputs[0][xi] += o.inputs[0][yi];
                     }
                   });
}

// Returns how many elements window `at` along an axis of `size` counts in an average.
int64_t CountedLength(const PoolAttributes& pool, int64_t at, int64_t size) {
  const int64_t begin = at * pool.stride - pool.padding;
  const int64_t end = begin + pool.kernel;
  return pool.count_padding ? std::min(end, size + pool.padding) - begin
                            : std::min(end, size) - std::max(begin, int64_t{0});
}

// Returns the divisor of output element `yi`. x: [C, H, W], y: [C, H', W'].
template <class T>
T CountedArea(const PoolAttributes& pool, int64_t yi, const Shape& x, const Shape& y) {
  return static_cast<T>(CountedLength(pool, yi / y[2] % y[1], x[1]) *
                        CountedLength(pool, yi % y[2], x[2]));
}

template <class T>
void AvgPool(const Operands<T>& o) {
  const Shape& in = o.input_shape(0);
  const Shape& out = o.output_shape(0);
  std::fill_n(o.outputs[0], o.rows * ElementCount(out), T{0});
  ForEachInWindows(o.node.pool(), o.rows * out[0], in, out, [&](int64_t yi, int64_t, int64_t xi) {
    o.outputs[0][yi] += o.inputs[0][xi] / CountedArea<T>(o.node.pool(), yi, in, out);
  });
}

template <class T>
void AvgPoolGradient(const Operands<T>& o) {
  const Shape& x = o.output_shape(0);
  const Shape& y = o.input_shape(0);
  std::fill_n(o.outputs[0], o.rows * ElementCount(x), T{0});
  ForEachInWindows(o.node.pool(), o.rows * x[0], x, y, [&](int64_t yi, int64_t, int64_t xi) {
    o.outputs[0][xi] += o.inputs[0][yi] / CountedArea<T>(o.node.pool(), yi, x, y);
  });
}

template <class T>
void GlobalAvgPool(const Operands<T>& o) {
  const Shape& shape = o.input_shape(0);
  const int64_t plane = shape[1] * shape[2];
  for (int64_t p = 0; p < o.rows * shape[0]; ++p) {
    T sum = 0;
    for (int64_t i = 0; i < plane; ++i) {
      sum += o.inputs[0][p * plane + i];
    }
    o.outputs[0][p] = sum / static_cast<T>(plane);
  }
}

template <class T>
void GlobalAvgPoolGradient(const Operands<T>& o) {
  const Shape& shape = o.output_shape(0);
  const int64_t plane = shape[1] * shape[2];
  for (int64_t i = 0; i < o.rows * ElementCount(shape); ++i) {
    o.outputs[0][i] = o.inputs[0][i / plane] / static_cast<T>(plane);
  }
}

// Calls visit(element of the larger image, element of the smaller one) for all planes of both,
// whose shapes are [C, H, W].
template <class Visit>
void ForEachUpsampled(int64_t rows, const Shape& large, int64_t scale, const Visit& visit) {
  const int64_t width = large[2] / scale;
  for (int64_t line = 0; line < rows * large[0] * large[1]; ++line) {
    for (int64_t w = 0; w < large[2]; ++w) {
      visit(line * large[2] + w, line / scale * width + w / scale);
    }
  }
}

template <class T>
void Upsample(const Operands<T>& o) {
  ForEachUpsampled(o.rows, o.output_shape(0), LayerOf<layers::Upsample>(o.node).scale,
                   [&](int64_t yi, int64_t xi) { o.outputs[0][yi] = o.inputs[0][xi]; });
}

template <class T>
void UpsampleGradient(const Operands<T>& o) {
  std::fill_n(o.outputs[0], o.rows * ElementCount(o.output_shape(0)), T{0});
  ForEachUpsampled(o.rows, o.input_shape(0), LayerOf<layers::Upsample>(o.node).scale,
                   [&](int64_t yi, int64_t xi) { o.outputs[0][xi] += o.inputs[0][yi]; });
}

}  // namespace

TY_REFERENCE_OP(Upsample, Upsample);
TY_REFERENCE_OP(UpsampleGradient, UpsampleGradient);
TY_REFERENCE_OP(MaxPool, MaxPool);
TY_REFERENCE_OP(MaxPoolGradient, MaxPoolGradient);
TY_REFERENCE_OP(AvgPool, AvgPool);
TY_REFERENCE_OP(AvgPoolGradient, AvgPoolGradient);
TY_REFERENCE_OP(GlobalAvgPool, GlobalAvgPool);
TY_REFERENCE_OP(GlobalAvgPoolGradient, GlobalAvgPoolGradient);

}  // namespace trainyard::engine::reference
