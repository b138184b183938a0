// Computes linear and its gradients, as plain loops.
#include "worker/engine/backend/reference/kernels.h"

namespace trainyard::engine::reference {
namespace {

// Returns the index of the element of output k and input c in a linear layer's weight.
struct WeightIndex {
  int64_t of_output = 0;
  int64_t of_input = 0;

  WeightIndex(const Value& weight, int64_t in, int64_t out)
      : of_output(weight.is_transposed ? 1 : in), of_input(weight.is_transposed ? out : 1) {}
  int64_t operator()(int64_t k, int64_t c) const { return k * of_output + c * of_input; }
};

template <class T>
void Linear(const Operands<T>& o) {
  const T* w = o.inputs[1];
  const int64_t in = o.input_shape(0).back();
  const int64_t out = o.output_shape(0).back();
  const WeightIndex at(o.graph.value(o.node.inputs[1]), in, out);
  for (int64_t n = 0; n < VectorCount(o.rows, o.input_shape(0)); ++n) {
    for (int64_t k = 0; k < out; ++k) {
      T sum = o.inputs.size() > 2 ? o.inputs[2][k] : T{0};
      for (int64_t c = 0; c < in; ++c) {
        sum += w[at(k, c)] * o.inputs[0][n * in + c];
      }
      o.outputs[0][n * out + k] = o.node.relu ? Rectified(sum) : sum;
    }
  }
}

template <class T>
void LinearInputGradient(const Operands<T>& o) {
  const T* dy = o.inputs[0];
  const T* w = o.inputs[1];
  const int64_t in = o.output_shape(0).back();
  const int64_t out = o.input_shape(0).back();
  const WeightIndex at(o.graph.value(o.node.inputs[1]), in, out);
  for (int64_t n = 0; n < VectorCount(o.rows, o.input_shape(0)); ++n) {
    for (int64_t c = 0; c < in; ++c) {
      T sum = 0;
      for (int64_t k = 0; k < out; ++k) {
        sum += dy[n * out + k] * w[at(k, c)];
      }
      o.outputs[0][n * in + c] = sum;
    }
  }
}

template <class T>
void LinearParameterGradient(const Operands<T>& o) {
  const T* dy = o.inputs[0];
  const T* x = o.inputs[1];
  const int64_t in = o.input_shape(1).back();
  const int64_t out = o.input_shape(0).back();
  const int64_t vectors = VectorCount(o.rows, o.input_shape(0));
  const WeightIndex at(o.graph.value(o.graph.value(o.node.outputs[0]).primal), in, out);
  for (int64_t k = 0; k < out; ++k) {
    for (int64_t c = 0; c < in; ++c) {
      T sum = 0;
      for (int64_t n = 0; n < vectors; ++n) {
        sum += dy[n * out + k] * x[n * in + c];
      }
      o.outputs[0][at(k, c)] = sum;
    }
    if (o.outputs.size() > 1) {
      T sum = 0;
      for (int64_t n = 0; n < vectors; ++n) {
        sum += dy[n * out + k];
      }
      o.outputs[1][k] = sum;
    }
  }
}

}  // namespace

TY_REFERENCE_OP(Linear, Linear);
TY_REFERENCE_OP(LinearInputGradient, LinearInputGradient);
TY_REFERENCE_OP(LinearParameterGradient, LinearParameterGradient);

}  // namespace trainyard::engine::reference
