// Computes ops over the channels of a row, as plain loops.
#include <algorithm>
#include <cmath>

#include "worker/engine/backend/reference/kernels.h"
#include "worker/engine/graph/dropout.h"

namespace trainyard::engine::reference {
namespace {

template <class T>
void Dropout(const Operands<T>& o) {
  const DropoutAttributes& dropout = o.node.dropout();
  const int64_t count = ElementCount(o.input_shape(0));
  const T scale = static_cast<T>(1 / (1 - dropout.rate));
  for (int64_t n = 0; n < o.rows; ++n) {
    for (int64_t i = 0; i < count; ++i) {
      const PhiloxBlock words = DropoutWords(o.position, dropout.layer, n, i / 4);
      const bool is_kept = words[static_cast<size_t>(i % 4)] >= DropoutThreshold(dropout);
      o.outputs[0][n * count + i] = is_kept ? o.inputs[0][n * count + i] * scale : T{0};
    }
  }
}

template <class T>
void Concat(const Operands<T>& o) {
  T* y = o.outputs[0];
  for (int64_t n = 0; n < o.rows; ++n) {
    for (size_t part = 0; part < o.inputs.size(); ++part) {
      const int64_t count = ElementCount(o.input_shape(part));
      y = std::copy_n(o.inputs[part] + n * count, count, y);
    }
  }
}

template <class T>
void Slice(const Operands<T>& o) {
  const Shape& whole = o.input_shape(0);
  const int64_t whole_count = ElementCount(whole);
  const int64_t count = ElementCount(o.output_shape(0));
  const int64_t first = o.node.slice().first_channel * (whole_count / whole[0]);
  for (int64_t n = 0; n < o.rows; ++n) {
    std::copy_n(o.inputs[0] + n * whole_count + first, count, o.outputs[0] + n * count);
  }
}

// Returns element (c, p) of [C, plane] of row n.
template <class T>
struct ChannelsOfRow {
  int64_t channels, plane, row;

  int64_t at(int64_t c, int64_t p) const { return (row * channels + c) * plane + p; }

  // Returns s_c of ops/lrn.cc at pixel p.
  T Scale(const layers::Lrn& lrn, const T* x, int64_t c, int64_t p) const {
    T sum = 0;
    for (int64_t d = c - lrn.size / 2; d <= c + (lrn.size - 1) / 2; ++d) {
      if (d >= 0 && d < channels) {
        sum += x[at(d, p)] * x[at(d, p)];
      }
    }
    return static_cast<T>(lrn.k) + static_cast<T>(lrn.alpha / static_cast<double>(lrn.size)) * sum;
  }
};

template <class T>
void Lrn(const Operands<T>& o) {
  const layers::Lrn& lrn = LayerOf<layers::Lrn>(o.node);
  const Shape& shape = o.input_shape(0);
  const T* x = o.inputs[0];
  for (int64_t n = 0; n < o.rows; ++n) {
    const ChannelsOfRow<T> row = {shape[0], shape[1] * shape[2], n};
    for (int64_t c = 0; c < row.channels; ++c) {
      for (int64_t p = 0; p < row.plane; ++p) {
        o.outputs[0][row.at(c, p)] =
            x[row.at(c, p)] * std::pow(row.Scale(lrn, x, c, p), static_cast<T>(-lrn.beta));
      }
    }
  }
}

template <class T>
void LrnGradient(const Operands<T>& o) {
  const layers::Lrn& lrn = LayerOf<layers::Lrn>(o.node);
  const Shape& shape = o.input_shape(1);
  const T* dy = o.inputs[0];
  const T* x = o.inputs[1];
  const T beta = static_cast<T>(lrn.beta);
  const T factor = static_cast<T>(2 * lrn.alpha * lrn.beta / static_cast<double>(lrn.size));
  for (int64_t n = 0; n < o.rows; ++n) {
    const ChannelsOfRow<T> row = {shape[0], shape[1] * shape[2], n};
    for (int64_t c = 0; c < row.channels; ++c) {
      for (int64_t p = 0; p < row.plane; ++p) {
        // The windows that contain c are those of [c - (size - 1) / 2, c + size / 2].
        T sum = 0;
        for (int64_t d = c - (lrn.size - 1) / 2; d <= c + lrn.size / 2; ++d) {
          if (d >= 0 && d < row.channels) {
            sum +=
                dy[row.at(d, p)] * x[row.at(d, p)] * std::pow(row.Scale(lrn, x, d, p), -beta - 1);
          }
        }
        o.outputs[0][row.at(c, p)] = dy[row.at(c, p)] * std::pow(row.Scale(lrn, x, c, p), -beta) -
                                     factor * x[row.at(c, p)] * sum;
      }
    }
  }
}

// The elements of one group of one row: channels [first, first + count) of [C, plane].
template <class T>
struct GroupOfRow {
  GroupOfRow(const Operands<T>& o, size_t input, int64_t at)
      : groups(LayerOf<layers::GroupNorm>(o.node).groups), row(at / groups) {
    const Shape& shape = o.input_shape(input);
    channels = shape[0];
    plane = shape[1] * shape[2];
    count = channels / groups;
    first = at % groups * count;
  }

  // Calls visit(element, channel) for all of them.
  template <class Visit>
  void ForEach(const Visit& visit) const {
    for (int64_t c = first; c < first + count; ++c) {
      for (int64_t p = 0; p < plane; ++p) {
        visit((row * channels + c) * plane + p, c);
      }
    }
  }
  T elements() const { return static_cast<T>(count * plane); }

  int64_t groups, row, channels, plane, count, first;
};

template <class T>
void GroupNorm(const Operands<T>& o) {
  const T* x = o.inputs[0];
  for (int64_t at = 0; at < o.rows * LayerOf<layers::GroupNorm>(o.node).groups; ++at) {
    const GroupOfRow<T> group(o, 0, at);
    T mean = 0;
    group.ForEach([&](int64_t i, int64_t) { mean += x[i]; });
    mean /= group.elements();
    T variance = 0;
    group.ForEach([&](int64_t i, int64_t) { variance += (x[i] - mean) * (x[i] - mean); });
    variance /= group.elements();
    const T inverse =
        1 / std::sqrt(variance + static_cast<T>(LayerOf<layers::GroupNorm>(o.node).eps));
    group.ForEach([&](int64_t i, int64_t c) {
      o.outputs[0][i] = (x[i] - mean) * inverse * o.inputs[1][c] + o.inputs[2][c];
    });
    o.outputs[1][at] = mean;
    o.outputs[2][at] = inverse;
  }
}

// With h = (x - mean) * inverse and d = dy * weight:
//   dx = inverse * (d - mean of d - h * mean of d h), each mean over the group
template <class T>
void GroupNormGradient(const Operands<T>& o) {
  const T* dy = o.inputs[0];
  const T* x = o.inputs[1];
  std::fill_n(o.outputs[1], o.input_shape(1)[0], T{0});
  std::fill_n(o.outputs[2], o.input_shape(1)[0], T{0});
  for (int64_t at = 0; at < o.rows * LayerOf<layers::GroupNorm>(o.node).groups; ++at) {
    const GroupOfRow<T> group(o, 1, at);
    const T mean = o.inputs[3][at];
    const T inverse = o.inputs[4][at];
    T sum = 0;
    T sum_h = 0;
    group.ForEach([&](int64_t i, int64_t c) {
      const T h = (x[i] - mean) * inverse;
      sum += dy[i] * o.inputs[2][c];
      sum_h += dy[i] * o.inputs[2][c] * h;
      o.outputs[1][c] += dy[i] * h;
      o.outputs[2][c] += dy[i];
    });
    if (o.outputs[0] == nullptr) continue;
    group.ForEach([&](int64_t i, int64_t c) {
      const T h = (x[i] - mean) * inverse;
      o.outputs[0][i] = inverse * (dy[i] * o.inputs[2][c] - (sum + h * sum_h) / group.elements());
    });
  }
}

}  // namespace

TY_REFERENCE_OP(GroupNorm, GroupNorm);
TY_REFERENCE_OP(GroupNormGradient, GroupNormGradient);
TY_REFERENCE_OP(Dropout, Dropout);
TY_REFERENCE_OP(Concat, Concat);
TY_REFERENCE_OP(Slice, Slice);
TY_REFERENCE_OP(Lrn, Lrn);
TY_REFERENCE_OP(LrnGradient, LrnGradient);

}  // namespace trainyard::engine::reference
