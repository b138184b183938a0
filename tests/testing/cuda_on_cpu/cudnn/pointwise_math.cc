// The functions of cuDNN's pointwise modes, in f32.
#include "tests/testing/cuda_on_cpu/cudnn/pointwise_math.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace trainyard::cuda_on_cpu::cudnn {
namespace {

using Settings = PointwiseSettings;

float Sigmoid(float x) {
  return 1.0f / (1.0f + std::exp(-x));
}

// These max and min keep a NaN, as cuDNN's do by default.
float Larger(float x, float b) {
  return std::isnan(x) || x > b ? x : b;
}
float Smaller(float x, float b) {
  return std::isnan(x) || x < b ? x : b;
}

float Relu(float x, const Settings& s) {
  return x < s.lower_clip ? s.lower_clip + s.lower_clip_slope * (x - s.lower_clip)
                          : Smaller(x, s.upper_clip);
}
float ReluGradient(float x, float dy, const Settings& s) {
  return x <= s.lower_clip ? s.lower_clip_slope * dy : x < s.upper_clip ? dy : 0.0f;
}

float Gelu(float x) {
  return 0.5f * x * (1.0f + std::erf(x * static_cast<float>(std::numbers::sqrt2 / 2)));
}
float GeluGradient(float x, float dy) {
  const double z = static_cast<double>(x);
  const double below = 0.5 * (1 + std::erf(z * std::numbers::sqrt2 / 2));
  const double density = std::exp(-z * z / 2) * std::numbers::inv_sqrtpi * std::numbers::sqrt2 / 2;
  return static_cast<float>(static_cast<double>(dy) * (below + z * density));
}

// Hendrycks and Gimpel, "Gaussian error linear units", section 2.
constexpr double kGeluCubic = 0.044715;
const double kGeluScale = std::sqrt(2 * std::numbers::inv_pi);

float GeluTanh(float x) {
  const double z = static_cast<double>(x);
  return static_cast<float>(0.5 * z * (1 + std::tanh(kGeluScale * (z + kGeluCubic * z * z * z))));
}
float GeluTanhGradient(float x, float dy) {
  const double z = static_cast<double>(x);
  const double t = std::tanh(kGeluScale * (z + kGeluCubic * z * z * z));
  const double slope = kGeluScale * (1 + 3 * kGeluCubic * z * z);
  return static_cast<float>(static_cast<double>(dy) *
                            (0.5 * (1 + t) + 0.5 * z * (1 - t * t) * slope));
}

float Softplus(float x, float beta) {
  return std::max(x, 0.0f) + std::log1p(std::exp(-std::abs(beta * x))) / beta;
}
float SwishGradient(float x, float dy, float beta) {
  const float s = Sigmoid(beta * x);
  return dy * (s + beta * x * s * (1 - s));
}

#define FUNCTION(expression)                                  \
  [](float x, float b, float t, const Settings& s) -> float { \
    (void)x, (void)b, (void)t, (void)s;                       \
    return expression;                                        \
  }
#define UNARY(name, expression)      \
  case CUDNN_POINTWISE_##name:       \
    return {                         \
      1, false, FUNCTION(expression) \
    }
#define BINARY(name, expression)     \
  case CUDNN_POINTWISE_##name:       \
    return {                         \
      2, false, FUNCTION(expression) \
    }
// The factor b is the gradient of the result.
#define GRADIENT(name, expression)  \
  case CUDNN_POINTWISE_##name:      \
    return {                        \
      2, true, FUNCTION(expression) \
    }

PointwiseRule ArithmeticRule(cudnnPointwiseMode_t mode) {
  switch (mode) {
    BINARY(ADD, x + b);
    BINARY(ADD_SQUARE, x + b * b);
    BINARY(DIV, x / b);
    BINARY(MAX, Larger(x, b));
    BINARY(MIN, Smaller(x, b));
    BINARY(MOD, std::fmod(x, b));
    BINARY(MUL, x * b);
    BINARY(POW, std::pow(x, b));
    BINARY(SUB, x - b);
    BINARY(ATAN2, std::atan2(x, b));
    BINARY(CMP_EQ, x == b);
    BINARY(CMP_NEQ, x != b);
    BINARY(CMP_GT, x > b);
    BINARY(CMP_GE, x >= b);
    BINARY(CMP_LT, x < b);
    BINARY(CMP_LE, x <= b);
    BINARY(LOGICAL_AND, x != 0 && b != 0);
    BINARY(LOGICAL_OR, x != 0 || b != 0);
    UNARY(LOGICAL_NOT, x == 0);
    UNARY(ABS, std::abs(x));
    UNARY(CEIL, std::ceil(x));
    UNARY(COS, std::cos(x));
    UNARY(EXP, std::exp(x));
    UNARY(FLOOR, std::floor(x));
    UNARY(LOG, std::log(x));
    UNARY(NEG, -x);
    UNARY(RSQRT, 1.0f / std::sqrt(x));
    UNARY(SIN, std::sin(x));
    UNARY(SQRT, std::sqrt(x));
    UNARY(TAN, std::tan(x));
    UNARY(ERF, std::erf(x));
    UNARY(IDENTITY, x);
    UNARY(RECIPROCAL, 1.0f / x);
    case CUDNN_POINTWISE_BINARY_SELECT:
      return {3, false, FUNCTION(t != 0 ? x : b)};
    default:
      return {};
  }
}

PointwiseRule ActivationRule(cudnnPointwiseMode_t mode) {
  switch (mode) {
    UNARY(RELU_FWD, Relu(x, s));
    UNARY(TANH_FWD, std::tanh(x));
    UNARY(SIGMOID_FWD, Sigmoid(x));
    UNARY(ELU_FWD, x > 0 ? x : s.elu_alpha * std::expm1(x));
    UNARY(GELU_FWD, Gelu(x));
    UNARY(SOFTPLUS_FWD, Softplus(x, s.softplus_beta));
    UNARY(SWISH_FWD, x * Sigmoid(s.swish_beta * x));
    UNARY(GELU_APPROX_TANH_FWD, GeluTanh(x));
    GRADIENT(RELU_BWD, ReluGradient(x, b, s));
    GRADIENT(TANH_BWD, b * (1 - std::tanh(x) * std::tanh(x)));
    GRADIENT(SIGMOID_BWD, b * Sigmoid(x) * (1 - Sigmoid(x)));
    GRADIENT(ELU_BWD, x > 0 ? b : b * s.elu_alpha * std::exp(x));
    GRADIENT(GELU_BWD, GeluGradient(x, b));
    GRADIENT(SOFTPLUS_BWD, b * Sigmoid(s.softplus_beta * x));
    GRADIENT(SWISH_BWD, SwishGradient(x, b, s.swish_beta));
    GRADIENT(GELU_APPROX_TANH_BWD, GeluTanhGradient(x, b));
    default:
      return {};
  }
}

#undef FUNCTION
#undef UNARY
#undef BINARY
#undef GRADIENT

}  // namespace

PointwiseRule PointwiseRuleOf(cudnnPointwiseMode_t mode) {
  const PointwiseRule rule = ArithmeticRule(mode);
  return rule.function != nullptr ? rule : ActivationRule(mode);
}

}  // namespace trainyard::cuda_on_cpu::cudnn
