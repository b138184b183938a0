// softmax_cross_entropy: (logits [classes], labels) -> probabilities [classes], loss [1],
// correct [1]; of sequences (logits [T, classes], labels [T]), a vector at each position.
//   loss: mean over the labels of -log probabilities[label], or with label smoothing s of the cross
//     entropy to (1 - s) onehot(label) + s / classes (Szegedy et al. 2016, section 7)
//   correct: labels at which the largest logit is
//   gradient  (probabilities, labels) -> dlogits = (probabilities - target) * scale
//     scale is weight / labels: the weight of the batch in its global batch enters here, so that
//     every gradient after it is weighted already
#include "absl/strings/str_cat.h"
#include "worker/engine/graph/autodiff.h"
#include "worker/engine/graph/graph_builder.h"
#include "worker/engine/graph/ops/ops.h"

namespace trainyard::engine {
namespace {

void Gradient(Autodiff& autodiff, const Node& node) {
  const ValueId logits = node.inputs[0];
  const ValueId dlogits = autodiff.NewGradient(logits);
  autodiff.Emit({OpKind::kSoftmaxCrossEntropyGradient,
                 node.name,
                 {node.outputs[0], node.inputs[1]},
                 {dlogits},
                 node.attributes});
  autodiff.Contribute(logits, dlogits);
}

}  // namespace

const OpDefinition kSoftmaxCrossEntropyDefinition = {.flops = FlopsPerElement<12>,
                                                     .gradient = Gradient};
const OpDefinition kSoftmaxCrossEntropyGradientDefinition = {.flops = FlopsPerElement<2>};

void GraphBuilder::SoftmaxCrossEntropy(ValueId logits, double label_smoothing) {
  constexpr char kName[] = "loss";
  if (!CheckNewLayer(kName) || !CheckFeatures(kName, logits)) {
    return;
  }
  if (!(label_smoothing >= 0 && label_smoothing < 1)) {
    Fail(kName, absl::StrCat("label smoothing ", label_smoothing, "; expected [0, 1)"));
    return;
  }
  graph_.logits = logits;
  if (shape(logits).size() == 2) {
    graph_.value(graph_.labels).shape = {shape(logits)[0]};
  }
  AddNode({OpKind::kSoftmaxCrossEntropy,
           kName,
           {logits, graph_.labels},
           {},
           LossAttributes{label_smoothing}},
          shape(logits));
  graph_.values.back().name = "probabilities";
  graph_.loss = graph_.Add({"loss", Role::kActivation, {1}, false, kNoValue});
  graph_.correct = graph_.Add({"correct", Role::kActivation, {1}, false, kNoValue});
  graph_.nodes.back().outputs.push_back(graph_.loss);
  graph_.nodes.back().outputs.push_back(graph_.correct);
}

}  // namespace trainyard::engine
