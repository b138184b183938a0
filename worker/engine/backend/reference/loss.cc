// Computes the loss, as plain loops.
#include <algorithm>
#include <cmath>

#include "worker/engine/backend/reference/kernels.h"

namespace trainyard::engine::reference {
namespace {

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
    T target = 0;  // the sum of target times logit
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

}  // namespace

TY_REFERENCE_OP(SoftmaxCrossEntropy, SoftmaxCrossEntropy);
TY_REFERENCE_OP(SoftmaxCrossEntropyGradient, SoftmaxCrossEntropyGradient);

}  // namespace trainyard::engine::reference
