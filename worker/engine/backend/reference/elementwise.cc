#include <cmath>

#include "common/base/check.h"
#include "worker/engine/backend/reference/families.h"

namespace trainyard::engine::reference {
namespace {

constexpr double kInverseSqrt2 = 0.70710678118654752440;
constexpr double kInverseSqrt2Pi = 0.39894228040143267794;
// Of the approximation by tanh: tanh(kScale (x + kCube x^3)).
constexpr double kScale = 0.79788456080286535588;  // sqrt(2 / pi)
constexpr double kCube = 0.044715;

template <class T>
T Gelu(T x, bool tanh_approximation) {
  if (tanh_approximation) {
    return T(0.5) * x * (1 + std::tanh(T(kScale) * (x + T(kCube) * x * x * x)));
  }
  return T(0.5) * x * (1 + std::erf(x * T(kInverseSqrt2)));
}

// d gelu / dx.
template <class T>
T GeluSlope(T x, bool tanh_approximation) {
  if (tanh_approximation) {
    const T t = std::tanh(T(kScale) * (x + T(kCube) * x * x * x));
    return T(0.5) * (1 + t) + T(0.5) * x * (1 - t * t) * T(kScale) * (1 + 3 * T(kCube) * x * x);
  }
  return T(0.5) * (1 + std::erf(x * T(kInverseSqrt2))) +
         x * T(kInverseSqrt2Pi) * std::exp(T(-0.5) * x * x);
}

// output[i] = f(input0[i]), or f(input0[i], input1[i]).
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

}  // namespace

template <class T>
void RunElementwise(const Operands<T>& o) {
  switch (o.node.op) {
    case OpKind::kRelu:
      return ForEachElement(o, [](T x) { return Rectified(x); });
    case OpKind::kTanh:
      return ForEachElement(o, [](T x) { return std::tanh(x); });
    case OpKind::kSigmoid:
      return ForEachElement(o, [](T x) { return 1 / (1 + std::exp(-x)); });
    case OpKind::kGelu: {
      const bool tanh_approximation = o.node.gelu().tanh_approximation;
      return ForEachElement(o, [=](T x) { return Gelu(x, tanh_approximation); });
    }
    case OpKind::kAdd:
      return ForEachElement(o, [](T a, T b) { return a + b; });
    case OpKind::kReluGradient:
      return ForEachElement(o, [](T dy, T y) { return y > 0 ? dy : T{0}; });
    case OpKind::kTanhGradient:
      return ForEachElement(o, [](T dy, T y) { return dy * (1 - y * y); });
    case OpKind::kSigmoidGradient:
      return ForEachElement(o, [](T dy, T y) { return dy * y * (1 - y); });
    case OpKind::kGeluGradient: {
      const bool tanh_approximation = o.node.gelu().tanh_approximation;
      return ForEachElement(o, [=](T dy, T x) { return dy * GeluSlope(x, tanh_approximation); });
    }
    default:
      CheckFailed(__FILE__, __LINE__, "no element-wise op");
  }
}

template void RunElementwise<float>(const Operands<float>&);
template void RunElementwise<double>(const Operands<double>&);

}  // namespace trainyard::engine::reference
