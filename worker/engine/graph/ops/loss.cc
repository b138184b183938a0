// softmax_cross_entropy: (logits [classes], labels) -> probabilities [classes], loss [1],
// correct [1].
//   loss: mean over the rows of -log probabilities[label], or with label smoothing s of the cross
//   entropy to (1 - s) onehot(label) + s / classes (Szegedy et al. 2016, section 7); correct: rows
//   whose largest logit is at the label. gradient  (probabilities, labels) -> dlogits =
//   (probabilities - target) * scale, where scale is weight / rows: the weight of the batch in its
//   global batch enters here, so that every gradient after it is weighted already.
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

const OpDefinition kSoftmaxCrossEntropyDefinition = {"softmax_cross_entropy", FlopsPerElement<12>,
                                                     Gradient};
const OpDefinition kSoftmaxCrossEntropyGradientDefinition = {"softmax_cross_entropy_gradient",
                                                             FlopsPerElement<2>, nullptr};

void GraphBuilder::SoftmaxCrossEntropy(ValueId logits, double label_smoothing) {
  constexpr char kName[] = "loss";
  if (!CheckNewLayer(kName) || !CheckInput(kName, logits, 1)) {
    return;
  }
  if (!(label_smoothing >= 0 && label_smoothing < 1)) {
    Fail(kName, absl::StrCat("label smoothing ", label_smoothing, "; expected [0, 1)"));
    return;
  }
  graph_.logits = logits;
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
