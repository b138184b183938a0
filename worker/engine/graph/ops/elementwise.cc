// Ops that look at one element at a time.
//   relu     (x) -> y = max(x, 0)        gradient (dy, y) -> dx = dy where y > 0, else 0
//   tanh     (x) -> y                    gradient (dy, y) -> dx = dy (1 - y^2)
//   sigmoid  (x) -> y = 1 / (1 + e^-x)   gradient (dy, y) -> dx = dy y (1 - y)
//   gelu     (x) -> y = x P(x), P the normal distribution (Hendrycks & Gimpel 2016, section 2), or
//            their approximation 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
//                                        gradient (dy, x) -> dx
//   add      (a, b) -> y                 the gradient of both is that of y, the same value
//   flatten  (x [C, H, W]) -> y [C H W]  gradient (dy) -> dx; no data moves in NCHW order
#include "absl/strings/str_cat.h"
#include "worker/engine/graph/autodiff.h"
#include "worker/engine/graph/graph_builder.h"
#include "worker/engine/graph/ops/ops.h"

namespace trainyard::engine {
namespace {

void ReluBackward(Autodiff& autodiff, const Node& node) {
  autodiff.EmitInputGradient(node, OpKind::kReluGradient, {node.outputs[0]});
}

void TanhBackward(Autodiff& autodiff, const Node& node) {
  autodiff.EmitInputGradient(node, OpKind::kTanhGradient, {node.outputs[0]});
}

void SigmoidBackward(Autodiff& autodiff, const Node& node) {
  autodiff.EmitInputGradient(node, OpKind::kSigmoidGradient, {node.outputs[0]});
}

void GeluBackward(Autodiff& autodiff, const Node& node) {
  autodiff.EmitInputGradient(node, OpKind::kGeluGradient, {node.inputs[0]});
}

std::vector<Node::Overwrite> OverEither(const Node&) {
  return {{0, 0}, {0, 1}};
}

void AddBackward(Autodiff& autodiff, const Node& node) {
  for (ValueId input : node.inputs) {
    if (autodiff.Wants(input)) {
      autodiff.Contribute(input, autodiff.GradientOf(node.outputs[0]));
    }
  }
}

void FlattenBackward(Autodiff& autodiff, const Node& node) {
  autodiff.EmitInputGradient(node, OpKind::kFlattenGradient);
}

}  // namespace

const OpDefinition kReluDefinition = {
    .flops = FlopsPerElement<1>, .gradient = ReluBackward, .overwrites = OverFirstInput};
const OpDefinition kReluGradientDefinition = {.flops = FlopsPerElement<1>,
                                              .overwrites = OverFirstInput};
const OpDefinition kTanhDefinition = {
    .flops = FlopsPerElement<10>, .gradient = TanhBackward, .overwrites = OverFirstInput};
const OpDefinition kTanhGradientDefinition = {.flops = FlopsPerElement<3>,
                                              .overwrites = OverFirstInput};
const OpDefinition kSigmoidDefinition = {
    .flops = FlopsPerElement<10>, .gradient = SigmoidBackward, .overwrites = OverFirstInput};
const OpDefinition kSigmoidGradientDefinition = {.flops = FlopsPerElement<3>,
                                                 .overwrites = OverFirstInput};
const OpDefinition kGeluDefinition = {
    .flops = FlopsPerElement<20>, .gradient = GeluBackward, .overwrites = OverFirstInput};
const OpDefinition kGeluGradientDefinition = {.flops = FlopsPerElement<25>,
                                              .overwrites = OverFirstInput};
const OpDefinition kAddDefinition = {
    .flops = FlopsPerElement<1>, .gradient = AddBackward, .overwrites = OverEither};
const OpDefinition kFlattenDefinition = {
    .flops = Nothing, .gradient = FlattenBackward, .bytes = Nothing, .is_alias = true};
const OpDefinition kFlattenGradientDefinition = {
    .flops = Nothing, .bytes = Nothing, .is_alias = true};

ValueId GraphBuilder::Relu(ValueId x) {
  const std::string name = AutoName("relu");
  if (!CheckInput(name, x, 0)) {
    return kNoValue;
  }
  return AddNode({OpKind::kRelu, name, {x}, {}, {}}, shape(x));
}

ValueId GraphBuilder::Tanh(ValueId x) {
  const std::string name = AutoName("tanh");
  if (!CheckInput(name, x, 0)) {
    return kNoValue;
  }
  return AddNode({OpKind::kTanh, name, {x}, {}, {}}, shape(x));
}

ValueId GraphBuilder::Sigmoid(ValueId x) {
  const std::string name = AutoName("sigmoid");
  if (!CheckInput(name, x, 0)) {
    return kNoValue;
  }
  return AddNode({OpKind::kSigmoid, name, {x}, {}, {}}, shape(x));
}

ValueId GraphBuilder::Gelu(ValueId x, const layers::Gelu& options) {
  const std::string name = AutoName("gelu");
  if (!CheckInput(name, x, 0)) {
    return kNoValue;
  }
  return AddNode({OpKind::kGelu, name, {x}, {}, options}, shape(x));
}

ValueId GraphBuilder::Add(ValueId a, ValueId b) {
  const std::string name = AutoName("add");
  if (!CheckInput(name, a, 0) || !CheckInput(name, b, 0)) {
    return kNoValue;
  }
  if (shape(a) != shape(b)) {
    return Fail(name, absl::StrCat("cannot add ", ShapeString(shape(a)), " ('",
                                   graph_.value(a).name, "') and ", ShapeString(shape(b)), " ('",
                                   graph_.value(b).name, "'); expected equal shapes"));
  }
  return AddNode({OpKind::kAdd, name, {a, b}, {}, {}}, shape(a));
}

ValueId GraphBuilder::Flatten(ValueId x) {
  const std::string name = AutoName("flatten");
  if (!CheckInput(name, x, 0)) {
    return kNoValue;
  }
  return AddNode({OpKind::kFlatten, name, {x}, {}, {}}, {ElementCount(shape(x))});
}

}  // namespace trainyard::engine
