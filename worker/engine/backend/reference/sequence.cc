// Computes ops over sequences, as plain loops: layer_norm, embeddings and attention.
#include <algorithm>
#include <cmath>
#include <vector>

#include "worker/engine/backend/reference/kernels.h"

namespace trainyard::engine::reference {
namespace {

template <class T>
void LayerNorm(const Operands<T>& o) {
  const int64_t features = o.input_shape(0).back();
  const int64_t vectors = o.rows * ElementCount(o.input_shape(0)) / features;
  for (int64_t n = 0; n < vectors; ++n) {
    const T* x = o.inputs[0] + n * features;
    T mean = 0;
    T variance = 0;
    for (int64_t c = 0; c < features; ++c) {
      mean += x[c] / static_cast<T>(features);
    }
    for (int64_t c = 0; c < features; ++c) {
      variance += (x[c] - mean) * (x[c] - mean) / static_cast<T>(features);
    }
    const T inverse =
        1 / std::sqrt(variance + static_cast<T>(LayerOf<layers::LayerNorm>(o.node).eps));
    for (int64_t c = 0; c < features; ++c) {
      o.outputs[0][n * features + c] = (x[c] - mean) * inverse * o.inputs[1][c] + o.inputs[2][c];
    }
    o.outputs[1][n] = mean;
    o.outputs[2][n] = inverse;
  }
}

// With xhat = (x - mean) inverse and g = dy weight:  dbias = sum dy;  dweight = sum dy xhat;
// dx = inverse (g - mean of g - xhat times the mean of g xhat).
template <class T>
void LayerNormGradient(const Operands<T>& o) {
  const int64_t features = o.input_shape(1).back();
  const int64_t vectors = o.rows * ElementCount(o.input_shape(1)) / features;
  const T* weight = o.inputs[2];
  T* dweight = o.outputs[1];
  T* dbias = o.outputs[2];
  std::fill_n(dweight, features, T{0});
  std::fill_n(dbias, features, T{0});
  for (int64_t n = 0; n < vectors; ++n) {
    const T* dy = o.inputs[0] + n * features;
    const T* x = o.inputs[1] + n * features;
    const T mean = o.inputs[3][n];
    const T inverse = o.inputs[4][n];
    T mean_g = 0;
    T mean_gx = 0;
    for (int64_t c = 0; c < features; ++c) {
      const T xhat = (x[c] - mean) * inverse;
      dbias[c] += dy[c];
      dweight[c] += dy[c] * xhat;
      mean_g += dy[c] * weight[c] / static_cast<T>(features);
      mean_gx += dy[c] * weight[c] * xhat / static_cast<T>(features);
    }
    for (int64_t c = 0; c < features && o.outputs[0] != nullptr; ++c) {
      const T xhat = (x[c] - mean) * inverse;
      o.outputs[0][n * features + c] = inverse * (dy[c] * weight[c] - mean_g - xhat * mean_gx);
    }
  }
}

template <class T>
void Embedding(const Operands<T>& o) {
  const int64_t width = o.output_shape(0)[1];
  for (int64_t n = 0; n < o.rows * o.output_shape(0)[0]; ++n) {
    std::copy_n(o.inputs[1] + static_cast<int64_t>(o.inputs[0][n]) * width, width,
                o.outputs[0] + n * width);
  }
}

template <class T>
void EmbeddingGradient(const Operands<T>& o) {
  const int64_t width = o.input_shape(0)[1];
  std::fill_n(o.outputs[0], ElementCount(o.output_shape(0)), T{0});
  for (int64_t n = 0; n < o.rows * o.input_shape(0)[0]; ++n) {
    for (int64_t c = 0; c < width; ++c) {
      o.outputs[0][static_cast<int64_t>(o.inputs[1][n]) * width + c] += o.inputs[0][n * width + c];
    }
  }
}

template <class T>
void PositionEmbedding(const Operands<T>& o) {
  const int64_t count = ElementCount(o.input_shape(0));
  for (int64_t i = 0; i < o.rows * count; ++i) {
    o.outputs[0][i] = o.inputs[0][i] + o.inputs[1][i % count];
  }
}

template <class T>
void PositionEmbeddingGradient(const Operands<T>& o) {
  const int64_t count = ElementCount(o.input_shape(0));
  std::fill_n(o.outputs[0], ElementCount(o.output_shape(0)), T{0});
  for (int64_t i = 0; i < o.rows * count; ++i) {
    o.outputs[0][i % count] += o.inputs[0][i];
  }
}

// One head of one row: the place of its queries, keys and values in x [T, 3 C], and its part of y
// [T, C].
struct Head {
  int64_t positions, width, columns;  // T, D, C
  int64_t row, head;

  Head(const Shape& x, int64_t heads, int64_t index)
      : positions(x[0]),
        width(x[1] / 3 / heads),
        columns(x[1] / 3),
        row(index / heads),
        head(index % heads) {}

  // part 0 is queries, 1 keys, 2 values
  int64_t x(int64_t part, int64_t t, int64_t d) const {
    return (row * positions + t) * 3 * columns + part * columns + head * width + d;
  }
  int64_t y(int64_t t, int64_t d) const {
    return (row * positions + t) * columns + head * width + d;
  }

  // Returns q_t k_s / sqrt(D).
  template <class T>
  T Score(const T* values, int64_t t, int64_t s) const {
    T sum = 0;
    for (int64_t d = 0; d < width; ++d) {
      sum += values[x(0, t, d)] * values[x(1, s, d)];
    }
    return sum / std::sqrt(static_cast<T>(width));
  }
};

template <class T>
void Attention(const Operands<T>& o) {
  const T* x = o.inputs[0];
  const int64_t heads = LayerOf<layers::Attention>(o.node).heads;
  for (int64_t index = 0; index < o.rows * heads; ++index) {
    const Head head(o.input_shape(0), heads, index);
    for (int64_t t = 0; t < head.positions; ++t) {
      std::vector<T> p;
      for (int64_t s = 0; s <= t; ++s) {
        p.push_back(head.Score(x, t, s));
      }
      const T largest = *std::max_element(p.begin(), p.end());
      T sum = 0;
      for (const T score : p) {
        sum += std::exp(score - largest);
      }
      const T logsum = largest + std::log(sum);
      o.outputs[1][index * head.positions + t] = logsum;
      for (int64_t d = 0; d < head.width; ++d) {
        T y = 0;
        for (int64_t s = 0; s <= t; ++s) {
          y += std::exp(p[static_cast<size_t>(s)] - logsum) * x[head.x(2, s, d)];
        }
        o.outputs[0][head.y(t, d)] = y;
      }
    }
  }
}

// With dp_ts = dy_t v_s:  dv_s = sum over t of p_ts dy_t;  dscore_ts = p_ts (dp_ts - sum over r of
// p_tr dp_tr);  dq_t = sum over s of dscore_ts k_s / sqrt(D), and dk_s alike.
template <class T>
void AttentionGradient(const Operands<T>& o) {
  const T* dy = o.inputs[0];
  const T* x = o.inputs[1];
  T* dx = o.outputs[0];
  const int64_t heads = LayerOf<layers::Attention>(o.node).heads;
  std::fill_n(dx, o.rows * ElementCount(o.output_shape(0)), T{0});
  for (int64_t index = 0; index < o.rows * heads; ++index) {
    const Head head(o.input_shape(1), heads, index);
    const T scale = 1 / std::sqrt(static_cast<T>(head.width));
    for (int64_t t = 0; t < head.positions; ++t) {
      std::vector<T> p, dp;
      T sum = 0;
      for (int64_t s = 0; s <= t; ++s) {
        p.push_back(std::exp(head.Score(x, t, s) - o.inputs[2][index * head.positions + t]));
        dp.push_back(0);
        for (int64_t d = 0; d < head.width; ++d) {
          dp.back() += dy[head.y(t, d)] * x[head.x(2, s, d)];
        }
        sum += p.back() * dp.back();
      }
      for (int64_t s = 0; s <= t; ++s) {
        const T probability = p[static_cast<size_t>(s)];
        const T dscore = probability * (dp[static_cast<size_t>(s)] - sum) * scale;
        for (int64_t d = 0; d < head.width; ++d) {
          dx[head.x(0, t, d)] += dscore * x[head.x(1, s, d)];
          dx[head.x(1, s, d)] += dscore * x[head.x(0, t, d)];
          dx[head.x(2, s, d)] += probability * dy[head.y(t, d)];
        }
      }
    }
  }
}

}  // namespace

TY_REFERENCE_OP(LayerNorm, LayerNorm);
TY_REFERENCE_OP(LayerNormGradient, LayerNormGradient);
TY_REFERENCE_OP(Embedding, Embedding);
TY_REFERENCE_OP(EmbeddingGradient, EmbeddingGradient);
TY_REFERENCE_OP(PositionEmbedding, PositionEmbedding);
TY_REFERENCE_OP(PositionEmbeddingGradient, PositionEmbeddingGradient);
TY_REFERENCE_OP(Attention, Attention);
TY_REFERENCE_OP(AttentionGradient, AttentionGradient);

}  // namespace trainyard::engine::reference
