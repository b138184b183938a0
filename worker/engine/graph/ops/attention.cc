// attention, causal, several heads of width D = C / heads (Vaswani et al. 2017, section 3.2):
//   (x [T, 3 C]) -> y [T, C], logsum [heads, T]
//   x holds queries, keys and values, [3][heads][D] at each position. Of head h
//     p_t = softmax over s <= t of q_t k_s / sqrt(D),  y_t = sum of p_ts v_s
//   logsum_t: log of the sum of the exponentials, from which the gradient computes p again: that is
//     T times smaller than p (Dao et al. 2022, section 3.1)
//   gradient  (dy, x, logsum) -> dx
#include "absl/strings/str_cat.h"
#include "worker/engine/graph/autodiff.h"
#include "worker/engine/graph/graph_builder.h"
#include "worker/engine/graph/ops/ops.h"

namespace trainyard::engine {
namespace {

// Returns the operations of `products` products of a query (or its gradient) with all keys up to
// its own.
double Products(const Graph& graph, const Node& node, int64_t rows, int products) {
  const bool is_gradient = node.op == OpKind::kAttentionGradient;
  const Shape& x = graph.value(node.inputs[is_gradient ? 1 : 0]).shape;
  const auto positions = static_cast<double>(x[0]);
  const double pairs = positions * (positions + 1) / 2;
  const int64_t queries = rows * x[1] / 3;
  return products * 2.0 * pairs * static_cast<double>(queries);
}

double ForwardFlops(const Graph& graph, const Node& node, int64_t rows) {
  return Products(graph, node, rows, 2);
}

double GradientFlops(const Graph& graph, const Node& node, int64_t rows) {
  return Products(graph, node, rows, 5);
}

void Gradient(Autodiff& autodiff, const Node& node) {
  autodiff.EmitInputGradient(node, OpKind::kAttentionGradient, {node.inputs[0], node.outputs[1]});
}

}  // namespace

const OpDefinition kAttentionDefinition = {.flops = ForwardFlops, .gradient = Gradient};
const OpDefinition kAttentionGradientDefinition = {.flops = GradientFlops};

ValueId GraphBuilder::Attention(ValueId x, int64_t heads) {
  const std::string name = AutoName("attention");
  if (!CheckSequence(name, x)) {
    return kNoValue;
  }
  const Shape in = shape(x);
  if (heads < 1 || in[1] % (3 * heads) != 0) {
    return Fail(name, absl::StrCat(heads, " heads of input ", ShapeString(in),
                                   "; expected queries, keys and values of equal width for each"));
  }
  const ValueId y =
      AddNode({OpKind::kAttention, name, {x}, {}, layers::Attention{heads}}, {in[0], in[1] / 3});
  if (y == kNoValue) {
    return kNoValue;
  }
  const ValueId logsum = graph_.Add(
      {absl::StrCat(name, ".logsum"), Role::kActivation, {heads, in[0]}, true, kNoValue});
  graph_.nodes.back().outputs.push_back(logsum);
  return y;
}

}  // namespace trainyard::engine
