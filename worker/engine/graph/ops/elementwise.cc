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

double NoFlops(const Graph&, const Node&, int64_t) {
  return 0;
}

void EmitFromOutput(Autodiff& autodiff, const Node& node, OpKind op) {
  const ValueId x = node.inputs[0];
  if (autodiff.Wants(x)) {
    const ValueId dx = autodiff.NewGradient(x);
    autodiff.Emit(
        {op, node.name, {autodiff.GradientOf(node.outputs[0]), node.outputs[0]}, {dx}, {}});
    autodiff.Contribute(x, dx);
  }
}

void ReluBackward(Autodiff& autodiff, const Node& node) {
  EmitFromOutput(autodiff, node, OpKind::kReluGradient);
}

void TanhBackward(Autodiff& autodiff, const Node& node) {
  EmitFromOutput(autodiff, node, OpKind::kTanhGradient);
}

void SigmoidBackward(Autodiff& autodiff, const Node& node) {
  EmitFromOutput(autodiff, node, OpKind::kSigmoidGradient);
}

void GeluBackward(Autodiff& autodiff, const Node& node) {
  const ValueId x = node.inputs[0];
  if (autodiff.Wants(x)) {
    const ValueId dx = autodiff.NewGradient(x);
    autodiff.Emit({OpKind::kGeluGradient,
                   node.name,
                   {autodiff.GradientOf(node.outputs[0]), x},
                   {dx},
                   node.attributes});
    autodiff.Contribute(x, dx);
  }
}

void AddBackward(Autodiff& autodiff, const Node& node) {
  for (ValueId input : node.inputs) {
    if (autodiff.Wants(input)) {
      autodiff.Contribute(input, autodiff.GradientOf(node.outputs[0]));
    }
  }
}

void FlattenBackward(Autodiff& autodiff, const Node& node) {
  const ValueId x = node.inputs[0];
  if (autodiff.Wants(x)) {
    const ValueId dx = autodiff.NewGradient(x);
    autodiff.Emit(
        {OpKind::kFlattenGradient, node.name, {autodiff.GradientOf(node.outputs[0])}, {dx}, {}});
    autodiff.Contribute(x, dx);
  }
}

}  // namespace

const OpDefinition kReluDefinition = {"relu", FlopsPerElement<1>, ReluBackward};
const OpDefinition kReluGradientDefinition = {"relu_gradient", FlopsPerElement<1>, nullptr};
const OpDefinition kTanhDefinition = {"tanh", FlopsPerElement<10>, TanhBackward};
const OpDefinition kTanhGradientDefinition = {"tanh_gradient", FlopsPerElement<3>, nullptr};
const OpDefinition kSigmoidDefinition = {"sigmoid", FlopsPerElement<10>, SigmoidBackward};
const OpDefinition kSigmoidGradientDefinition = {"sigmoid_gradient", FlopsPerElement<3>, nullptr};
const OpDefinition kGeluDefinition = {"gelu", FlopsPerElement<20>, GeluBackward};
const OpDefinition kGeluGradientDefinition = {"gelu_gradient", FlopsPerElement<25>, nullptr};
const OpDefinition kAddDefinition = {"add", FlopsPerElement<1>, AddBackward};
const OpDefinition kFlattenDefinition = {"flatten", NoFlops, FlattenBackward};
const OpDefinition kFlattenGradientDefinition = {"flatten_gradient", NoFlops, nullptr};

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

ValueId GraphBuilder::Gelu(ValueId x, bool tanh_approximation) {
  const std::string name = AutoName("gelu");
  if (!CheckInput(name, x, 0)) {
    return kNoValue;
  }
  return AddNode({OpKind::kGelu, name, {x}, {}, GeluAttributes{tanh_approximation}}, shape(x));
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
