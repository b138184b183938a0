// What every op must state: its name, its arithmetic, its gradient. The shapes stand in the
// GraphBuilder method beside it, in ops/<family>.cc.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "worker/engine/graph/graph.h"

namespace trainyard::engine {

class Autodiff;

struct OpDefinition {
  absl::string_view name;
  // Floating-point operations, a multiplication with an addition counted as 2.
  double (*flops)(const Graph& graph, const Node& node, int64_t rows);
  // Emits the nodes that take the gradient of the outputs to the inputs; null for gradients.
  void (*gradient)(Autodiff& autodiff, const Node& node);
};

const OpDefinition& Definition(OpKind op);

extern const OpDefinition kConv2dDefinition;
extern const OpDefinition kConv2dInputGradientDefinition;
extern const OpDefinition kConv2dParameterGradientDefinition;
extern const OpDefinition kLinearDefinition;
extern const OpDefinition kLinearInputGradientDefinition;
extern const OpDefinition kLinearParameterGradientDefinition;
extern const OpDefinition kBatchNormDefinition;
extern const OpDefinition kBatchNormGradientDefinition;
extern const OpDefinition kReluDefinition;
extern const OpDefinition kReluGradientDefinition;
extern const OpDefinition kTanhDefinition;
extern const OpDefinition kTanhGradientDefinition;
extern const OpDefinition kSigmoidDefinition;
extern const OpDefinition kSigmoidGradientDefinition;
extern const OpDefinition kGeluDefinition;
extern const OpDefinition kGeluGradientDefinition;
extern const OpDefinition kDropoutDefinition;
extern const OpDefinition kConcatDefinition;
extern const OpDefinition kSliceDefinition;
extern const OpDefinition kLrnDefinition;
extern const OpDefinition kLrnGradientDefinition;
extern const OpDefinition kLayerNormDefinition;
extern const OpDefinition kLayerNormGradientDefinition;
extern const OpDefinition kEmbeddingDefinition;
extern const OpDefinition kEmbeddingGradientDefinition;
extern const OpDefinition kPositionEmbeddingDefinition;
extern const OpDefinition kPositionEmbeddingGradientDefinition;
extern const OpDefinition kAttentionDefinition;
extern const OpDefinition kAttentionGradientDefinition;
extern const OpDefinition kAddDefinition;
extern const OpDefinition kFlattenDefinition;
extern const OpDefinition kFlattenGradientDefinition;
extern const OpDefinition kMaxPoolDefinition;
extern const OpDefinition kMaxPoolGradientDefinition;
extern const OpDefinition kAvgPoolDefinition;
extern const OpDefinition kAvgPoolGradientDefinition;
extern const OpDefinition kGlobalAvgPoolDefinition;
extern const OpDefinition kGlobalAvgPoolGradientDefinition;
extern const OpDefinition kStageOutputDefinition;
extern const OpDefinition kStageOutputGradientDefinition;
extern const OpDefinition kSoftmaxCrossEntropyDefinition;
extern const OpDefinition kSoftmaxCrossEntropyGradientDefinition;

// `factor` operations for each element of the node's first input.
template <int factor>
double FlopsPerElement(const Graph& graph, const Node& node, int64_t rows) {
  return factor * static_cast<double>(graph.value(node.inputs[0]).Elements(rows));
}

}  // namespace trainyard::engine
