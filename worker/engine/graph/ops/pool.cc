// Pooling over windows of H and W.
//   max_pool         (x [C, H, W]) -> y [C, H', W'], index [C, H', W']
//     index: position of the first maximum in its window, row-major; a NaN counts as largest, as in
//     PyTorch. If fused with relu, windows whose maximum is not positive have none.
//   its gradient     (dy, index) -> dx, dy added at the maximum of each window
//   avg_pool         (x) -> y   gradient (dy) -> dx
//     The divisor counts padding as zeros, or leaves it out. What a window of ceil_mode reaches
//     beyond the padding never counts, as in PyTorch.
//   global_avg_pool  (x) -> y [C, 1, 1]   gradient (dy) -> dx
#include "absl/strings/str_cat.h"
#include "worker/engine/graph/autodiff.h"
#include "worker/engine/graph/graph_builder.h"
#include "worker/engine/graph/ops/ops.h"

namespace trainyard::engine {
namespace {

double WindowFlops(const Graph& graph, const Node& node, int64_t rows) {
  const PoolAttributes& pool = node.pool();
  // Gradients read the pooled side; forward ops write it.
  const bool is_gradient =
      node.op == OpKind::kMaxPoolGradient || node.op == OpKind::kAvgPoolGradient;
  const Value& pooled = graph.value(is_gradient ? node.inputs[0] : node.outputs[0]);
  return static_cast<double>(pooled.Elements(rows) * pool.kernel * pool.kernel);
}

double GlobalGradientFlops(const Graph& graph, const Node& node, int64_t rows) {
  return static_cast<double>(graph.value(node.outputs[0]).Elements(rows));
}

// Emits max_pool_gradient, which reads dy and the index.
void MaxPoolBackward(Autodiff& autodiff, const Node& node) {
  autodiff.EmitInputGradient(node, OpKind::kMaxPoolGradient, {node.outputs[1]});
}

void AvgPoolBackward(Autodiff& autodiff, const Node& node) {
  autodiff.EmitInputGradient(node, OpKind::kAvgPoolGradient);
}

void GlobalAvgPoolBackward(Autodiff& autodiff, const Node& node) {
  autodiff.EmitInputGradient(node, OpKind::kGlobalAvgPoolGradient);
}

}  // namespace

const OpDefinition kMaxPoolDefinition = {.flops = WindowFlops, .gradient = MaxPoolBackward};
const OpDefinition kMaxPoolGradientDefinition = {.flops = WindowFlops};
const OpDefinition kAvgPoolDefinition = {.flops = WindowFlops, .gradient = AvgPoolBackward};
const OpDefinition kAvgPoolGradientDefinition = {.flops = WindowFlops};
const OpDefinition kGlobalAvgPoolDefinition = {.flops = FlopsPerElement<1>,
                                               .gradient = GlobalAvgPoolBackward};
const OpDefinition kGlobalAvgPoolGradientDefinition = {.flops = GlobalGradientFlops};

ValueId GraphBuilder::Pool(OpKind op, ValueId x, const PoolOptions& options) {
  const std::string name = AutoName(OpName(op));
  if (!CheckInput(name, x, 3)) {
    return kNoValue;
  }
  const int64_t stride = options.stride == 0 ? options.kernel : options.stride;
  if (options.kernel < 1 || options.kernel > kMaxPoolKernel || stride < 1 || options.padding < 0 ||
      2 * options.padding > options.kernel) {
    return Fail(name,
                absl::StrCat("window ", options.kernel, ", stride ", options.stride, ", padding ",
                             options.padding, "; expected a window in [1, ", kMaxPoolKernel,
                             "], a positive stride and padding in [0, ", "window / 2]"));
  }
  const Shape in = shape(x);
  const layers::Window window = {.kernel = options.kernel,
                                 .stride = stride,
                                 .padding = options.padding,
                                 .ceil_mode = options.ceil_mode};
  const Shape out = {in[0], layers::WindowCount(in[1], window), layers::WindowCount(in[2], window)};
  if (out[1] < 1 || out[2] < 1) {
    return Fail(name, absl::StrCat("a window of ", options.kernel, "x", options.kernel,
                                   " is larger than the input ", ShapeString(in), " padded by ",
                                   options.padding));
  }
  return AddNode({op,
                  name,
                  {x},
                  {},
                  PoolAttributes{options.kernel, stride, options.padding, options.count_padding}},
                 out);
}

ValueId GraphBuilder::MaxPool(ValueId x, const PoolOptions& options) {
  const ValueId y = Pool(OpKind::kMaxPool, x, options);
  if (y != kNoValue) {
    const ValueId index = graph_.Add({absl::StrCat(graph_.value(y).name, ".index"),
                                      Role::kActivation,
                                      shape(y),
                                      true,
                                      kNoValue,
                                      {},
                                      Element::kByte});
    graph_.nodes.back().outputs.push_back(index);
  }
  return y;
}

ValueId GraphBuilder::AvgPool(ValueId x, const PoolOptions& options) {
  return Pool(OpKind::kAvgPool, x, options);
}

ValueId GraphBuilder::GlobalAvgPool(ValueId x) {
  const std::string name = AutoName("global_avg_pool");
  if (!CheckInput(name, x, 3)) {
    return kNoValue;
  }
  return AddNode({OpKind::kGlobalAvgPool, name, {x}, {}, {}}, {shape(x)[0], 1, 1});
}

}  // namespace trainyard::engine
