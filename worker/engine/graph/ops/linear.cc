// linear: (x [in], weight [out, in], bias? [out]) -> y [out]; of a sequence [T, in] -> [T, out], at
// each position alike. A weight that is_transposed lies as [in, out], and so does its gradient.
//   input gradient      (dy, weight) -> dx
//   parameter gradient  (dy, x) -> dweight, dbias?
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/engine/graph/autodiff.h"
#include "worker/engine/graph/graph_builder.h"
#include "worker/engine/graph/ops/ops.h"

namespace trainyard::engine {
namespace {

// Returns the number of vectors of the first input, x or dy.
int64_t Vectors(const Graph& graph, const Node& node, int64_t rows) {
  const Shape& shape = graph.value(node.inputs[0]).shape;
  return shape.size() == 2 ? rows * shape[0] : rows;
}

double ForwardFlops(const Graph& graph, const Node& node, int64_t rows) {
  return 2.0 * static_cast<double>(Vectors(graph, node, rows) *
                                   ElementCount(graph.value(node.inputs[1]).shape));
}

double ParameterGradientFlops(const Graph& graph, const Node& node, int64_t rows) {
  return 2.0 * static_cast<double>(Vectors(graph, node, rows) *
                                   ElementCount(graph.value(node.outputs[0]).shape));
}

void Gradient(Autodiff& autodiff, const Node& node) {
  const ValueId dy = autodiff.GradientOf(node.outputs[0]);
  const ValueId x = node.inputs[0];
  Node parameters{OpKind::kLinearParameterGradient, node.name, {dy, x}, {}, {}};
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    parameters.outputs.push_back(autodiff.NewGradient(node.inputs[i]));
  }
  autodiff.Emit(parameters);
  if (autodiff.Wants(x)) {
    const ValueId dx = autodiff.NewGradient(x);
    autodiff.Emit({OpKind::kLinearInputGradient, node.name, {dy, node.inputs[1]}, {dx}, {}});
    autodiff.Contribute(x, dx);
  }
}

}  // namespace

const OpDefinition kLinearDefinition = {.flops = ForwardFlops, .gradient = Gradient};
const OpDefinition kLinearInputGradientDefinition = {.flops = ForwardFlops};
const OpDefinition kLinearParameterGradientDefinition = {.flops = ParameterGradientFlops};

ValueId GraphBuilder::Linear(absl::string_view name, ValueId x, int64_t out_features, bool bias) {
  if (!CheckNewLayer(name) || !CheckFeatures(name, x)) {
    return kNoValue;
  }
  if (out_features < 1) {
    return Fail(
        name, absl::StrCat("linear with ", out_features, " output features; expected at least 1"));
  }
  const int64_t in_features = shape(x).back();
  Shape output = shape(x);
  output.back() = out_features;
  Node node{OpKind::kLinear,
            std::string(name),
            {x, AddParameter(name, "weight", {out_features, in_features})},
            {},
            {}};
  if (bias) {
    node.inputs.push_back(AddParameter(name, "bias", {out_features}));
  }
  return AddNode(node, output);
}

ValueId GraphBuilder::TransposedLinear(absl::string_view name, ValueId x, int64_t out_features) {
  const ValueId y = Linear(name, x, out_features);
  if (y == kNoValue) {
    return kNoValue;
  }
  Value& weight = graph_.value(graph_.nodes.back().inputs[1]);
  std::swap(weight.shape[0], weight.shape[1]);
  weight.is_transposed = true;
  return y;
}

ValueId GraphBuilder::TiedLinear(absl::string_view name, ValueId x, absl::string_view embedding) {
  if (!CheckNewLayer(name) || !CheckFeatures(name, x)) {
    return kNoValue;
  }
  for (const Node& node : graph_.nodes) {
    if (node.op != OpKind::kEmbedding || node.name != embedding) {
      continue;
    }
    const ValueId weight = node.inputs[1];
    Shape output = shape(x);
    if (output.back() != shape(weight)[1]) {
      return Fail(name, absl::StrCat("input ", ShapeString(output), " does not fit the weight ",
                                     ShapeString(shape(weight)), " of '", embedding, "'"));
    }
    output.back() = shape(weight)[0];
    return AddNode({OpKind::kLinear, std::string(name), {x, weight}, {}, {}}, output);
  }
  return Fail(name, absl::StrCat("no embedding is called '", embedding, "'"));
}

}  // namespace trainyard::engine
