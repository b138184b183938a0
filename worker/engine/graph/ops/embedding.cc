// embedding: (tokens [T], weight [vocabulary, C]) -> y [T, C], row `token` of the weight each.
//   gradient  (dy, tokens) -> dweight, zero where no token is
// position_embedding: (x [T, C], weight [P, C]) -> y [T, C], y_t = x_t + weight_t; P at least T.
//   gradient  (dy) -> dweight, summed over rows, zero from T on; that of x is dy, the same value
#include "absl/strings/str_cat.h"
#include "worker/engine/graph/autodiff.h"
#include "worker/engine/graph/graph_builder.h"
#include "worker/engine/graph/ops/ops.h"

namespace trainyard::engine {
namespace {

void EmbeddingBackward(Autodiff& autodiff, const Node& node) {
  const ValueId dy = autodiff.GradientOf(node.outputs[0]);
  autodiff.Emit({OpKind::kEmbeddingGradient,
                 node.name,
                 {dy, node.inputs[0]},
                 {autodiff.NewGradient(node.inputs[1])},
                 {}});
}

void PositionEmbeddingBackward(Autodiff& autodiff, const Node& node) {
  const ValueId dy = autodiff.GradientOf(node.outputs[0]);
  autodiff.Emit({OpKind::kPositionEmbeddingGradient,
                 node.name,
                 {dy},
                 {autodiff.NewGradient(node.inputs[1])},
                 {}});
  if (autodiff.Wants(node.inputs[0])) {
    autodiff.Contribute(node.inputs[0], dy);
  }
}

}  // namespace

const OpDefinition kEmbeddingDefinition = {.flops = Nothing, .gradient = EmbeddingBackward};
const OpDefinition kEmbeddingGradientDefinition = {.flops = FlopsPerElement<1>};
const OpDefinition kPositionEmbeddingDefinition = {.flops = FlopsPerElement<1>,
                                                   .gradient = PositionEmbeddingBackward,
                                                   .overwrites = OverFirstInput};
const OpDefinition kPositionEmbeddingGradientDefinition = {.flops = FlopsPerElement<1>};

ValueId GraphBuilder::Embedding(absl::string_view name, ValueId tokens, int64_t width) {
  if (!CheckNewLayer(name)) {
    return kNoValue;
  }
  if (tokens != graph_.input || graph_.vocabulary == 0) {
    return Fail(name, "expected the input of a graph over tokens");
  }
  if (width < 1) {
    return Fail(name, absl::StrCat("embedding of width ", width, "; expected at least 1"));
  }
  const ValueId weight = AddParameter(name, "weight", {graph_.vocabulary, width});
  return AddNode({OpKind::kEmbedding, std::string(name), {tokens, weight}, {}, {}},
                 {shape(tokens)[0], width});
}

ValueId GraphBuilder::PositionEmbedding(absl::string_view name, ValueId x, int64_t positions) {
  if (!CheckNewLayer(name) || !CheckSequence(name, x)) {
    return kNoValue;
  }
  const Shape in = shape(x);
  const int64_t count = positions == 0 ? in[0] : positions;
  if (count < in[0]) {
    return Fail(name, absl::StrCat(positions, " positions for input ", ShapeString(in),
                                   "; expected at least ", in[0]));
  }
  const ValueId weight = AddParameter(name, "weight", {count, in[1]});
  return AddNode({OpKind::kPositionEmbedding, std::string(name), {x, weight}, {}, {}}, in);
}

}  // namespace trainyard::engine
