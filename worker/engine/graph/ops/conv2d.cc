// conv2d: (x [C, H, W], weight [K, C/groups, k, k], bias? [K]) -> y [K, H', W'].
//   input gradient      (dy, weight) -> dx
//   parameter gradient  (dy, x) -> dweight, dbias?
//   Merged by a pass it has several weights, the channels of y one after the other, and as many
//   biases or none; so have its gradients.
#include "absl/strings/str_cat.h"
#include "worker/engine/graph/autodiff.h"
#include "worker/engine/graph/graph_builder.h"
#include "worker/engine/graph/ops/ops.h"

namespace trainyard::engine {
namespace {

// Returns the operations of all weights, which differ only in their output channels.
double ConvFlops(const Value& y, const Value& weight, int64_t rows) {
  // Every output element is a dot product over [C/groups, k, k].
  const int64_t dot = weight.shape[1] * weight.shape[2] * weight.shape[3];
  return 2.0 * static_cast<double>(y.Elements(rows)) * static_cast<double>(dot);
}

double ForwardFlops(const Graph& graph, const Node& node, int64_t rows) {
  return ConvFlops(graph.value(node.outputs[0]), graph.value(node.inputs[1]), rows);
}

double InputGradientFlops(const Graph& graph, const Node& node, int64_t rows) {
  return ConvFlops(graph.value(node.inputs[0]), graph.value(node.inputs[1]), rows);
}

double ParameterGradientFlops(const Graph& graph, const Node& node, int64_t rows) {
  return ConvFlops(graph.value(node.inputs[0]), graph.value(node.outputs[0]), rows);
}

void Gradient(Autodiff& autodiff, const Node& node) {
  const ValueId dy = autodiff.GradientOf(node.outputs[0]);
  const ValueId x = node.inputs[0];
  Node parameters{OpKind::kConv2dParameterGradient, node.name, {dy, x}, {}, node.attributes};
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    parameters.outputs.push_back(autodiff.NewGradient(node.inputs[i]));
  }
  autodiff.Emit(parameters);
  if (autodiff.Wants(x)) {
    const ValueId dx = autodiff.NewGradient(x);
    autodiff.Emit(
        {OpKind::kConv2dInputGradient, node.name, {dy, node.inputs[1]}, {dx}, node.attributes});
    autodiff.Contribute(x, dx);
  }
}

}  // namespace

const OpDefinition kConv2dDefinition = {.flops = ForwardFlops, .gradient = Gradient};
const OpDefinition kConv2dInputGradientDefinition = {.flops = InputGradientFlops};
const OpDefinition kConv2dParameterGradientDefinition = {.flops = ParameterGradientFlops};

ValueId GraphBuilder::Conv2d(absl::string_view name, ValueId x, const layers::Conv2d& options) {
  if (!CheckNewLayer(name) || !CheckInput(name, x, 3)) {
    return kNoValue;
  }
  const Shape in = shape(x);
  if (options.channels < 1 || options.kernel < 1 || options.stride < 1 || options.padding < 0 ||
      options.dilation < 1 || options.groups < 1) {
    return Fail(name,
                absl::StrCat("conv2d with out_channels ", options.channels, ", kernel ",
                             options.kernel, ", stride ", options.stride, ", padding ",
                             options.padding, ", dilation ", options.dilation, ", groups ",
                             options.groups, "; expected all positive, padding not negative"));
  }
  if (in[0] % options.groups != 0 || options.channels % options.groups != 0) {
    return Fail(name, absl::StrCat("groups ", options.groups, " must divide the channels of input ",
                                   ShapeString(in), " and out_channels ", options.channels));
  }
  const layers::Window window = {.kernel = options.kernel,
                                 .stride = options.stride,
                                 .padding = options.padding,
                                 .dilation = options.dilation};
  const Shape out = {options.channels, layers::WindowCount(in[1], window),
                     layers::WindowCount(in[2], window)};
  if (out[1] < 1 || out[2] < 1) {
    const int64_t reach = layers::Reach(window);
    return Fail(name, absl::StrCat("a window of ", reach, "x", reach, " is larger than the input ",
                                   ShapeString(in), " padded by ", options.padding));
  }
  const Shape weight = {options.channels, in[0] / options.groups, options.kernel, options.kernel};
  Node node{OpKind::kConv2d, std::string(name), {x, AddParameter(name, "weight", weight)}, {}, {}};
  if (options.bias) {
    node.inputs.push_back(AddParameter(name, "bias", {options.channels}));
  }
  node.attributes = ConvAttributes{options.kernel, options.stride, options.padding,
                                   options.dilation, options.groups};
  return AddNode(node, out);
}

}  // namespace trainyard::engine
