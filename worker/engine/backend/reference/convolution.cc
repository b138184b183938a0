// Computes conv2d and its gradients, as plain loops.
#include <algorithm>
#include <cmath>
#include <vector>

#include "worker/engine/backend/reference/kernels.h"

namespace trainyard::engine::reference {
namespace {

// Positions in a line of outputs, [first, end), whose inputs lie within `inputs` if output i has
// input i * stride + shift.
struct Range {
  int64_t first = 0;
  int64_t end = 0;
};
Range Within(int64_t inputs, int64_t outputs, int64_t stride, int64_t shift) {
  const int64_t first = shift < 0 ? (stride - 1 - shift) / stride : 0;
  const int64_t end = shift < inputs ? std::min(outputs, (inputs - 1 - shift) / stride + 1) : 0;
  return {first, end};
}

// Calls visit(tap, output position, input position, count) for lines of products between a plane of
// inputs and one of outputs. In a line the tap, which is a position in the kernel, is the same,
// outputs follow each other, and inputs are the stride apart:
// y[n, k, oh, ow] = sum over c, i, j of w[k, c, i, j] x[n, c, oh s + i d - p, ow s + j d - p].
template <class Visit>
void ForEachLine(const ConvAttributes& conv, const Shape& x, const Shape& y, const Visit& visit) {
  for (int64_t i = 0; i < conv.kernel; ++i) {
    const int64_t down = i * conv.dilation - conv.padding;
    const Range oh_range = Within(x[1], y[1], conv.stride, down);
    for (int64_t j = 0; j < conv.kernel; ++j) {
      const int64_t right = j * conv.dilation - conv.padding;
      const Range ow_range = Within(x[2], y[2], conv.stride, right);
      for (int64_t oh = oh_range.first; oh < oh_range.end; ++oh) {
        const int64_t h = oh * conv.stride + down;
        const int64_t v = ow_range.first * conv.stride + right;
        visit(i * conv.kernel + j, oh * y[2] + ow_range.first, h * x[2] + v,
              ow_range.end - ow_range.first);
      }
    }
  }
}

// The sizes of a convolution. Inputs and outputs have the same number of groups.
struct Sizes {
  Sizes(const ConvAttributes& conv, const Shape& x, const Shape& y)
      : groups(conv.groups),
        inputs(x[0] / conv.groups),
        outputs(y[0] / conv.groups),
        taps(conv.kernel * conv.kernel),
        x_plane(x[1] * x[2]),
        y_plane(y[1] * y[2]) {}

  int64_t groups;
  int64_t inputs;   // channels of a group
  int64_t outputs;  // channels of a group
  int64_t taps;
  int64_t x_plane;
  int64_t y_plane;
};

// Transposes each of `count` matrices. The loops below run along channels, which are many where
// planes are small, so channels lie next to each other in what these loops read and write.
template <class T>
void Transpose(const T* from, int64_t count, int64_t rows, int64_t columns, T* to) {
  for (int64_t n = 0; n < count; ++n, from += rows * columns, to += rows * columns) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) to[c * rows + r] = from[r * columns + c];
    }
  }
}

template <class T>
std::vector<T> Transposed(const T* from, int64_t count, int64_t rows, int64_t columns) {
  std::vector<T> to(static_cast<size_t>(count * rows * columns));
  Transpose(from, count, rows, columns, to.data());
  return to;
}

// Adds `factor` times each of `from` to `to`.
template <class T>
void AddScaled(const T* __restrict from, T factor, int64_t count, T* __restrict to) {
  for (int64_t i = 0; i < count; ++i) to[i] += from[i] * factor;
}

// Concatenates inputs [first, first + count): the weights, or biases, of merged convolutions.
template <class T>
std::vector<T> Gather(const Operands<T>& o, size_t first, size_t count) {
  std::vector<T> gathered;
  for (size_t i = first; i < first + count; ++i) {
    gathered.insert(gathered.end(), o.inputs[i], o.inputs[i] + ElementCount(o.input_shape(i)));
  }
  return gathered;
}

// Does the opposite: splits into outputs [first, first + count).
template <class T>
void Scatter(const Operands<T>& o, const std::vector<T>& gathered, size_t first, size_t count) {
  const T* from = gathered.data();
  for (size_t i = first; i < first + count; ++i) {
    std::copy_n(from, ElementCount(o.output_shape(i)), o.outputs[i]);
    from += ElementCount(o.output_shape(i));
  }
}

template <class T>
void Conv2d(const Operands<T>& o) {
  const ConvAttributes& conv = o.node.conv();
  const Shape& in = o.input_shape(0);
  const Shape& out = o.output_shape(0);
  const Sizes sizes(conv, in, out);
  const auto weights = static_cast<size_t>(conv.weights);
  const std::vector<T> bias = Gather(o, 1 + weights, o.inputs.size() - 1 - weights);
  T* y = o.outputs[0];
  for (int64_t i = 0; i < o.rows * out[0] * sizes.y_plane; ++i) {
    y[i] = bias.empty() ? T{0} : bias[static_cast<size_t>(i / sizes.y_plane % out[0])];
  }
  const int64_t blocks = o.rows * sizes.groups;
  const std::vector<T> w = Transposed(Gather(o, 1, weights).data(), sizes.groups, sizes.outputs,
                                      sizes.inputs * sizes.taps);
  std::vector<T> sums = Transposed(y, blocks, sizes.outputs, sizes.y_plane);
  for (int64_t block = 0; block < blocks; ++block) {
    for (int64_t c = 0; c < sizes.inputs; ++c) {
      const T* x = o.inputs[0] + (block * sizes.inputs + c) * sizes.x_plane;
      const T* w_of =
          w.data() + (block % sizes.groups * sizes.inputs + c) * sizes.taps * sizes.outputs;
      T* sums_of = sums.data() + block * sizes.y_plane * sizes.outputs;
      ForEachLine(conv, in, out, [&](int64_t tap, int64_t yi, int64_t xi, int64_t count) {
        for (int64_t i = 0; i < count; ++i) {
          AddScaled(w_of + tap * sizes.outputs, x[xi + i * conv.stride], sizes.outputs,
                    sums_of + (yi + i) * sizes.outputs);
        }
      });
    }
  }
  Transpose(sums.data(), blocks, sizes.y_plane, sizes.outputs, y);
  for (int64_t i = 0; o.node.relu && i < o.rows * out[0] * sizes.y_plane; ++i) {
    y[i] = Rectified(y[i]);
  }
}

template <class T>
void Conv2dInputGradient(const Operands<T>& o) {
  const ConvAttributes& conv = o.node.conv();
  const Shape& in = o.output_shape(0);
  const Shape& out = o.input_shape(0);
  const Sizes sizes(conv, in, out);
  const std::vector<T> w = Transposed(Gather(o, 1, static_cast<size_t>(conv.weights)).data(),
                                      out[0], sizes.inputs, sizes.taps);
  const int64_t blocks = o.rows * sizes.groups;
  std::vector<T> sums(static_cast<size_t>(blocks * sizes.inputs * sizes.x_plane), T{0});
  for (int64_t plane = 0; plane < o.rows * out[0]; ++plane) {
    const T* dy = o.inputs[0] + plane * sizes.y_plane;
    const T* w_of = w.data() + plane % out[0] * sizes.taps * sizes.inputs;
    T* sums_of = sums.data() + plane / sizes.outputs * sizes.x_plane * sizes.inputs;
    ForEachLine(conv, in, out, [&](int64_t tap, int64_t yi, int64_t xi, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        AddScaled(w_of + tap * sizes.inputs, dy[yi + i], sizes.inputs,
                  sums_of + (xi + i * conv.stride) * sizes.inputs);
      }
    });
  }
  Transpose(sums.data(), blocks, sizes.x_plane, sizes.inputs, o.outputs[0]);
}

// Returns the gradient of the weights, whose shape is [K, C / groups, k, k] with K the channels of
// all merged convolutions.
template <class T>
std::vector<T> WeightGradient(const Operands<T>& o) {
  const ConvAttributes& conv = o.node.conv();
  const Shape& in = o.input_shape(1);
  const Shape& out = o.input_shape(0);
  const Sizes sizes(conv, in, out);
  const int64_t blocks = o.rows * sizes.groups;
  const std::vector<T> dy = Transposed(o.inputs[0], blocks, sizes.outputs, sizes.y_plane);
  const int64_t rows = sizes.inputs * sizes.taps;
  std::vector<T> sums(static_cast<size_t>(sizes.groups * rows * sizes.outputs), T{0});
  std::vector<T> line(static_cast<size_t>(sizes.outputs));
  for (int64_t block = 0; block < blocks; ++block) {
    for (int64_t c = 0; c < sizes.inputs; ++c) {
      const T* x = o.inputs[1] + (block * sizes.inputs + c) * sizes.x_plane;
      const T* dy_of = dy.data() + block * sizes.y_plane * sizes.outputs;
      T* sums_of =
          sums.data() + (block % sizes.groups * sizes.inputs + c) * sizes.taps * sizes.outputs;
      ForEachLine(conv, in, out, [&](int64_t tap, int64_t yi, int64_t xi, int64_t count) {
        std::fill(line.begin(), line.end(), T{0});
        for (int64_t i = 0; i < count; ++i) {
          AddScaled(dy_of + (yi + i) * sizes.outputs, x[xi + i * conv.stride], sizes.outputs,
                    line.data());
        }
        AddScaled(line.data(), T{1}, sizes.outputs, sums_of + tap * sizes.outputs);
      });
    }
  }
  return Transposed(sums.data(), sizes.groups, rows, sizes.outputs);
}

template <class T>
void Conv2dParameterGradient(const Operands<T>& o) {
  const auto weights = static_cast<size_t>(o.node.conv().weights);
  Scatter(o, WeightGradient(o), 0, weights);
  if (o.outputs.size() == weights) return;
  const T* dy = o.inputs[0];
  const Shape& out = o.input_shape(0);
  const int64_t plane = out[1] * out[2];
  std::vector<T> db(static_cast<size_t>(out[0]), T{0});
  for (int64_t i = 0; i < o.rows * out[0] * plane; ++i) {
    db[static_cast<size_t>(i / plane % out[0])] += dy[i];
  }
  Scatter(o, db, weights, weights);
}

}  // namespace

TY_REFERENCE_OP(Conv2d, Conv2d);
TY_REFERENCE_OP(Conv2dInputGradient, Conv2dInputGradient);
TY_REFERENCE_OP(Conv2dParameterGradient, Conv2dParameterGradient);

}  // namespace trainyard::engine::reference
