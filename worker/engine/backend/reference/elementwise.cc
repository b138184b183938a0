// Computes ops that look at one element at a time, as plain loops, and ops that move nothing.
#include <algorithm>
#include <cmath>

#include "worker/engine/backend/reference/kernels.h"

namespace trainyard::engine::reference {
namespace {

constexpr double kInverseSqrt2 = 0.70710678118654752440;
constexpr double kInverseSqrt2Pi = 0.39894228040143267794;
// The approximation by tanh is tanh(kScale (x + kCube x^3)).
constexpr double kScale = 0.79788456080286535588;  // sqrt(2 / pi)
constexpr double kCube = 0.044715;

template <class T>
T GeluOf(T x, bool tanh_approximation) {
  if (tanh_approximation) {
    return T(0.5) * x * (1 + std::tanh(T(kScale) * (x + T(kCube) * x * x * x)));
  }
  return T(0.5) * x * (1 + std::erf(x * T(kInverseSqrt2)));
}

// Returns d gelu / dx.
template <class T>
T GeluSlope(T x, bool tanh_approximation) {
  if (tanh_approximation) {
    const T t = std::tanh(T(kScale) * (x + T(kCube) * x * x * x));
    return T(0.5) * (1 + t) + T(0.5) * x * (1 - t * t) * T(kScale) * (1 + 3 * T(kCube) * x * x);
  }
  return T(0.5) * (1 + std::erf(x * T(kInverseSqrt2))) +
         x * T(kInverseSqrt2Pi) * std::exp(T(-0.5) * x * x);
}

// Computes output[i] = f(input0[i]), or f(input0[i], input1[i]).
template <class T, class F>
void ForEachElement(const Operands<T>& o, const F& f) {
  const int64_t count = o.graph.value(o.node.outputs[0]).Elements(o.rows);
  for (int64_t i = 0; i < count; ++i) {
    if constexpr (std::is_invocable_v<F, T>) {
      o.outputs[0][i] = f(o.inputs[0][i]);
    } else {
      o.outputs[0][i] = f(o.inputs[0][i], o.inputs[1][i]);
    }
  }
}

template <class T>
void Relu(const Operands<T>& o) {
  ForEachElement(o, [](T x) { return Rectified(x); });
}

template <class T>
void Tanh(const Operands<T>& o) {
  ForEachElement(o, [](T x) { return std::tanh(x); });
}

template <class T>
void Sigmoid(const Operands<T>& o) {
  ForEachElement(o, [](T x) { return 1 / (1 + std::exp(-x)); });
}

template <class T>
void Gelu(const Operands<T>& o) {
  const bool tanh_approximation = LayerOf<layers::Gelu>(o.node).tanh;
  ForEachElement(o, [=](T x) { return GeluOf(x, tanh_approximation); });
}

template <class T>
void Add(const Operands<T>& o) {
  ForEachElement(o, [](T a, T b) { return a + b; });
}

template <class T>
void ReluGradient(const Operands<T>& o) {
  ForEachElement(o, [](T dy, T y) { return y > 0 ? dy : T{0}; });
}

template <class T>
void TanhGradient(const Operands<T>& o) {
  ForEachElement(o, [](T dy, T y) { return dy * (1 - y * y); });
}

template <class T>
void SigmoidGradient(const Operands<T>& o) {
  ForEachElement(o, [](T dy, T y) { return dy * y * (1 - y); });
}

template <class T>
void GeluGradient(const Operands<T>& o) {
  const bool tanh_approximation = LayerOf<layers::Gelu>(o.node).tanh;
  ForEachElement(o, [=](T dy, T x) { return dy * GeluSlope(x, tanh_approximation); });
}

// The output shares the memory of the input.
template <class T>
void Alias(const Operands<T>&) {}

template <class T>
void StageOutputGradient(const Operands<T>& o) {
  std::copy_n(o.stage_output_gradient, o.rows * ElementCount(o.output_shape(0)), o.outputs[0]);
}

}  // namespace

TY_REFERENCE_OP(Relu, Relu);
TY_REFERENCE_OP(Tanh, Tanh);
TY_REFERENCE_OP(Sigmoid, Sigmoid);
TY_REFERENCE_OP(Gelu, Gelu);
TY_REFERENCE_OP(Add, Add);
TY_REFERENCE_OP(ReluGradient, ReluGradient);
TY_REFERENCE_OP(TanhGradient, TanhGradient);
TY_REFERENCE_OP(SigmoidGradient, SigmoidGradient);
TY_REFERENCE_OP(GeluGradient, GeluGradient);
TY_REFERENCE_OP(Flatten, Alias);
TY_REFERENCE_OP(FlattenGradient, Alias);
TY_REFERENCE_OP(StageOutput, Alias);
TY_REFERENCE_OP(StageOutputGradient, StageOutputGradient);

}  // namespace trainyard::engine::reference
