// Lowers the loss and its gradient. They are vectors of floats, whatever the type of activations
// is.
#include <algorithm>
#include <cmath>

#include "worker/engine/backend/cpu/lower_ops.h"
#include "worker/engine/backend/cpu/parallel.h"
#include "worker/engine/backend/judge.h"

namespace trainyard::engine::cpu {

void LowerSoftmaxCrossEntropy(Lowering& lowering, const Node& node) {
  const ValueId logits = node.inputs[0];
  const Layout plain = PlainLayout(lowering.value(logits).shape);
  const int64_t classes = lowering.value(logits).shape.back();
  const BufferId x = lowering.In(logits, lowering.layout(logits).Plain().As(NumberType::kF32));
  lowering.SetLayout(node.outputs[0], plain);
  const BufferId probabilities = lowering.BufferOf(node.outputs[0]);
  const int64_t labels = lowering.rows() * (ElementCount(lowering.value(logits).shape) / classes);
  // The loss of each label, and whether it was right or among the five largest. They are summed in
  // order, whatever the number of threads.
  const BufferId judged = lowering.AddScratch(labels * 3 * int64_t{sizeof(double)});
  const double smoothing = node.loss().label_smoothing;
  const int threads = lowering.threads();
  const Kernels<float>* kernels = &BestKernels<float>();
  Program* program = &lowering.program();
  auto run = [=](RunState& state) {
    double* each = program->ptr<double>(judged);
    ParallelFor(threads, labels, [&](int64_t n) {
      const float* from = program->ptr<float>(x) + n * classes;
      float* to = program->ptr<float>(probabilities) + n * classes;
      const int64_t label = state.labels[n];
      float largest;
      float sum;
      kernels->softmax(classes, 1.0f, from, to, &largest, &sum);
      double others = 0;  // the sum over the logits, relative to the largest
      for (int64_t k = 0; smoothing > 0 && k < classes; ++k) {
        others += static_cast<double>(from[k] - largest);
      }
      each[3 * n] = std::log(static_cast<double>(sum)) -
                    (1 - smoothing) * static_cast<double>(from[label] - largest) -
                    smoothing / static_cast<double>(classes) * others;
      // If logits are equal, the first is the prediction.
      const bool is_right =
          from[label] == largest && std::find(from, from + label, largest) == from + label;
      each[3 * n + 1] = is_right ? 1 : 0;
      each[3 * n + 2] = state.counts_top5 && IsInTop(from, classes, label) ? 1 : 0;
    });
    state.loss = 0;
    state.correct = 0;
    state.top5 = 0;
    for (int64_t n = 0; n < labels; ++n) {
      state.loss += each[3 * n];
      state.correct += each[3 * n + 1] > 0 ? 1 : 0;
      state.top5 += each[3 * n + 2] > 0 ? 1 : 0;
    }
    state.loss /= static_cast<double>(labels);
  };
  lowering.EmitCall(node, run, {x, probabilities, judged});
}

void LowerSoftmaxCrossEntropyGradient(Lowering& lowering, const Node& node) {
  const BufferId probabilities = lowering.BufferOf(node.inputs[0]);
  const Layout plain = lowering.layout(node.inputs[0]);
  lowering.SetLayout(node.outputs[0], plain);
  const BufferId dx = lowering.BufferOf(node.outputs[0]);
  const int64_t classes = lowering.value(node.inputs[0]).shape.back();
  const int64_t labels = lowering.rows() * (plain.elements() / classes);
  const float smoothing = static_cast<float>(node.loss().label_smoothing);
  const int threads = lowering.threads();
  Program* program = &lowering.program();
  auto run = [=](RunState& state) {
    const float everywhere = smoothing / static_cast<float>(classes);
    ParallelFor(threads, labels, [&](int64_t n) {
      const float* from = program->ptr<float>(probabilities) + n * classes;
      float* to = program->ptr<float>(dx) + n * classes;
      for (int64_t k = 0; k < classes; ++k) {
        to[k] = (from[k] - everywhere) * state.gradient_scale;
      }
      to[state.labels[n]] -= (1 - smoothing) * state.gradient_scale;
    });
  };
  lowering.EmitCall(node, run, {probabilities, dx});
}

}  // namespace trainyard::engine::cpu
