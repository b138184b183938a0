// Ops over the channels of a row, as plain loops.
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

// Element (c, p) of [C, plane] of row n.
template <class T>
struct ChannelsOfRow {
  int64_t channels, plane, row;

  int64_t at(int64_t c, int64_t p) const { return (row * channels + c) * plane + p; }

  // s_c of ops/lrn.cc at pixel p.
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
  const layers::Lrn& lrn = o.node.layer<layers::Lrn>();
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
  const layers::Lrn& lrn = o.node.layer<layers::Lrn>();
  const Shape& shape = o.input_shape(1);
  const T* dy = o.inputs[0];
  const T* x = o.inputs[1];
  const T beta = static_cast<T>(lrn.beta);
  const T factor = static_cast<T>(2 * lrn.alpha * lrn.beta / static_cast<double>(lrn.size));
  for (int64_t n = 0; n < o.rows; ++n) {
    const ChannelsOfRow<T> row = {shape[0], shape[1] * shape[2], n};
    for (int64_t c = 0; c < row.channels; ++c) {
      for (int64_t p = 0; p < row.plane; ++p) {
        // The windows that have c are those of [c - (size - 1) / 2, c + size / 2].
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

}  // namespace

TY_REFERENCE_OP(Dropout, Dropout);
TY_REFERENCE_OP(Concat, Concat);
TY_REFERENCE_OP(Slice, Slice);
TY_REFERENCE_OP(Lrn, Lrn);
TY_REFERENCE_OP(LrnGradient, LrnGradient);

}  // namespace trainyard::engine::reference
