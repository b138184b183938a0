#include "worker/engine/backend/reference/kernels.h"

#include <algorithm>
#include <cmath>

#include "common/base/check.h"
#include "worker/engine/backend/reference/families.h"

namespace trainyard::engine::reference {
namespace {

// Vectors of a value [F] or [T, F].
int64_t VectorCount(int64_t rows, const Shape& shape) {
  return rows * (ElementCount(shape) / shape.back());
}

// Where the element of output k and input c of a linear layer's weight lies.
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

// What window `at` along an axis of `size` counts in an average.
int64_t CountedLength(const PoolAttributes& pool, int64_t at, int64_t size) {
  const int64_t begin = at * pool.stride - pool.padding;
  const int64_t end = begin + pool.kernel;
  return pool.count_padding ? std::min(end, size + pool.padding) - begin
                            : std::min(end, size) - std::max(begin, int64_t{0});
}

// The divisor of output element `yi`. x: [C, H, W], y: [C, H', W'].
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

template <class T>
void SoftmaxCrossEntropy(const Operands<T>& o) {
  const int64_t classes = o.input_shape(0).back();
  const int64_t labels = VectorCount(o.rows, o.input_shape(0));
  const T smoothing = static_cast<T>(o.node.loss().label_smoothing);
  T loss = 0;
  T correct = 0;
  for (int64_t n = 0; n < labels; ++n) {
    const T* logits = o.inputs[0] + n * classes;
    T* probabilities = o.outputs[0] + n * classes;
    const int64_t label = o.labels[n];
    const int64_t best = std::max_element(logits, logits + classes) - logits;
    const T largest = logits[best];
    T sum = 0;
    T target = 0;  // sum of target times logit
    for (int64_t k = 0; k < classes; ++k) {
      probabilities[k] = std::exp(logits[k] - largest);
      sum += probabilities[k];
      target += smoothing / static_cast<T>(classes) * (logits[k] - largest);
    }
    target += (1 - smoothing) * (logits[label] - largest);
    loss += std::log(sum) - target;
    for (int64_t k = 0; k < classes; ++k) {
      probabilities[k] /= sum;
    }
    correct += best == label ? 1 : 0;
  }
  o.outputs[1][0] = loss / static_cast<T>(labels);
  o.outputs[2][0] = correct;
}

template <class T>
void SoftmaxCrossEntropyGradient(const Operands<T>& o) {
  const int64_t classes = o.input_shape(0).back();
  const int64_t labels = VectorCount(o.rows, o.input_shape(0));
  const T smoothing = static_cast<T>(o.node.loss().label_smoothing);
  for (int64_t i = 0; i < labels * classes; ++i) {
    const T onehot = o.labels[i / classes] == i % classes ? 1 : 0;
    const T target = (1 - smoothing) * onehot + smoothing / static_cast<T>(classes);
    o.outputs[0][i] = (o.inputs[0][i] - target) * static_cast<T>(o.gradient_scale);
  }
}

// All but batch_norm.
template <class T>
void RunSure(const Operands<T>& o) {
  switch (o.node.op) {
    case OpKind::kConv2d:
    case OpKind::kConv2dInputGradient:
    case OpKind::kConv2dParameterGradient:
      return RunConvolution(o);
    case OpKind::kBatchNorm:
    case OpKind::kBatchNormGradient:
      CheckFailed(__FILE__, __LINE__, "batch_norm may fail");
    case OpKind::kLinear:
      return Linear(o);
    case OpKind::kRelu:
    case OpKind::kTanh:
    case OpKind::kSigmoid:
    case OpKind::kGelu:
    case OpKind::kAdd:
      return RunElementwise(o);
    case OpKind::kFlatten:
    case OpKind::kFlattenGradient:
    case OpKind::kStageOutput:
      return;  // the output shares the input's memory
    case OpKind::kStageOutputGradient:
      std::copy_n(o.stage_output_gradient, o.rows * ElementCount(o.output_shape(0)), o.outputs[0]);
      return;
    case OpKind::kDropout:
    case OpKind::kConcat:
    case OpKind::kSlice:
    case OpKind::kLrn:
    case OpKind::kLrnGradient:
      return RunChannels(o);
    case OpKind::kLayerNorm:
    case OpKind::kLayerNormGradient:
    case OpKind::kEmbedding:
    case OpKind::kEmbeddingGradient:
    case OpKind::kPositionEmbedding:
    case OpKind::kPositionEmbeddingGradient:
    case OpKind::kAttention:
    case OpKind::kAttentionGradient:
      return RunSequence(o);
    case OpKind::kMaxPool:
      return MaxPool(o);
    case OpKind::kAvgPool:
      return AvgPool(o);
    case OpKind::kGlobalAvgPool:
      return GlobalAvgPool(o);
    case OpKind::kSoftmaxCrossEntropy:
      return SoftmaxCrossEntropy(o);
    case OpKind::kLinearInputGradient:
      return LinearInputGradient(o);
    case OpKind::kLinearParameterGradient:
      return LinearParameterGradient(o);
    case OpKind::kReluGradient:
    case OpKind::kTanhGradient:
    case OpKind::kSigmoidGradient:
    case OpKind::kGeluGradient:
      return RunElementwise(o);
    case OpKind::kMaxPoolGradient:
      return MaxPoolGradient(o);
    case OpKind::kAvgPoolGradient:
      return AvgPoolGradient(o);
    case OpKind::kGlobalAvgPoolGradient:
      return GlobalAvgPoolGradient(o);
    case OpKind::kSoftmaxCrossEntropyGradient:
      return SoftmaxCrossEntropyGradient(o);
  }
}

}  // namespace

template <class T>
absl::Status RunNode(const Operands<T>& o) {
  if (o.node.op == OpKind::kBatchNorm || o.node.op == OpKind::kBatchNormGradient) {
    return RunBatchNorm(o);
  }
  RunSure(o);
  return absl::OkStatus();
}

template absl::Status RunNode<float>(const Operands<float>&);
template absl::Status RunNode<double>(const Operands<double>&);

}  // namespace trainyard::engine::reference
