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

// Calls visit(output position, weight position, input position, count) for lines of products of a
// convolution. In a line the weight is the same, outputs follow each other, and inputs are the
// stride apart:
// y[n, k, oh, ow] = sum over c, i, j of w[k, c, i, j] x[n, c, oh s + i d - p, ow s + j d - p].
template <class Visit>
void ForEachLine(const ConvAttributes& conv, int64_t rows, const Shape& x, const Shape& w,
                 const Shape& y, const Visit& visit) {
  const int64_t outputs_per_group = y[0] / conv.groups;
  const int64_t inputs_per_group = w[1];
  for (int64_t n = 0; n < rows; ++n) {
    for (int64_t k = 0; k < y[0]; ++k) {
      const int64_t first_input = k / outputs_per_group * inputs_per_group;
      for (int64_t c = 0; c < inputs_per_group; ++c) {
        const int64_t x_plane = (n * x[0] + first_input + c) * x[1] * x[2];
        const int64_t y_plane = (n * y[0] + k) * y[1] * y[2];
        for (int64_t i = 0; i < conv.kernel; ++i) {
          const int64_t down = i * conv.dilation - conv.padding;
          const Range oh_range = Within(x[1], y[1], conv.stride, down);
          for (int64_t j = 0; j < conv.kernel; ++j) {
            const int64_t right = j * conv.dilation - conv.padding;
            const Range ow_range = Within(x[2], y[2], conv.stride, right);
            const int64_t weight = ((k * inputs_per_group + c) * conv.kernel + i) * conv.kernel + j;
            for (int64_t oh = oh_range.first; oh < oh_range.end; ++oh) {
              const int64_t h = oh * conv.stride + down;
              const int64_t v = ow_range.first * conv.stride + right;
              visit(y_plane + oh * y[2] + ow_range.first, weight, x_plane + h * x[2] + v,
                    ow_range.end - ow_range.first);
            }
          }
        }
      }
    }
  }
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

// Returns the shape [K, C / groups, k, k], with K the channels of all merged convolutions.
Shape WeightShape(const Shape& of_first, const Shape& y) {
  return {y[0], of_first[1], of_first[2], of_first[3]};
}

template <class T>
void Conv2d(const Operands<T>& o) {
  const size_t weights = static_cast<size_t>(o.node.conv().weights);
  const T* x = o.inputs[0];
  const std::vector<T> w = Gather(o, 1, weights);
  const std::vector<T> bias = Gather(o, 1 + weights, o.inputs.size() - 1 - weights);
  T* y = o.outputs[0];
  const Shape& out = o.output_shape(0);
  const int64_t plane = out[1] * out[2];
  for (int64_t i = 0; i < o.rows * out[0] * plane; ++i) {
    y[i] = bias.empty() ? T{0} : bias[static_cast<size_t>(i / plane % out[0])];
  }
  ForEachLine(
      o.node.conv(), o.rows, o.input_shape(0), WeightShape(o.input_shape(1), out), out,
      [&, stride = o.node.conv().stride](int64_t yi, int64_t wi, int64_t xi, int64_t count) {
        const T weight = w[static_cast<size_t>(wi)];
        for (int64_t i = 0; i < count; ++i) y[yi + i] += weight * x[xi + i * stride];
      });
  for (int64_t i = 0; o.node.relu && i < o.rows * out[0] * plane; ++i) {
    y[i] = Rectified(y[i]);
  }
}

template <class T>
void Conv2dInputGradient(const Operands<T>& o) {
  const T* dy = o.inputs[0];
  const std::vector<T> w = Gather(o, 1, static_cast<size_t>(o.node.conv().weights));
  T* dx = o.outputs[0];
  const Shape& y = o.input_shape(0);
  std::fill_n(dx, o.rows * ElementCount(o.output_shape(0)), T{0});
  ForEachLine(
      o.node.conv(), o.rows, o.output_shape(0), WeightShape(o.input_shape(1), y), y,
      [&, stride = o.node.conv().stride](int64_t yi, int64_t wi, int64_t xi, int64_t count) {
        const T weight = w[static_cast<size_t>(wi)];
        for (int64_t i = 0; i < count; ++i) dx[xi + i * stride] += weight * dy[yi + i];
      });
}

template <class T>
void Conv2dParameterGradient(const Operands<T>& o) {
  const T* dy = o.inputs[0];
  const T* x = o.inputs[1];
  const size_t weights = static_cast<size_t>(o.node.conv().weights);
  const Shape& out = o.input_shape(0);
  const Shape w = WeightShape(o.output_shape(0), out);
  std::vector<T> dw(static_cast<size_t>(ElementCount(w)), T{0});
  ForEachLine(
      o.node.conv(), o.rows, o.input_shape(1), w, out,
      [&, stride = o.node.conv().stride](int64_t yi, int64_t wi, int64_t xi, int64_t count) {
        T sum = 0;
        for (int64_t i = 0; i < count; ++i) sum += dy[yi + i] * x[xi + i * stride];
        dw[static_cast<size_t>(wi)] += sum;
      });
  Scatter(o, dw, 0, weights);
  if (o.outputs.size() > weights) {
    const int64_t plane = out[1] * out[2];
    std::vector<T> db(static_cast<size_t>(out[0]), T{0});
    for (int64_t i = 0; i < o.rows * out[0] * plane; ++i) {
      db[static_cast<size_t>(i / plane % out[0])] += dy[i];
    }
    Scatter(o, db, weights, weights);
  }
}

}  // namespace

TY_REFERENCE_OP(Conv2d, Conv2d);
TY_REFERENCE_OP(Conv2dInputGradient, Conv2dInputGradient);
TY_REFERENCE_OP(Conv2dParameterGradient, Conv2dParameterGradient);

}  // namespace trainyard::engine::reference
