// Marks parameters of a model with the way in which they start.
#include "worker/engine/models/initializers.h"

#include <cmath>

#include "absl/strings/match.h"

namespace trainyard::engine {
namespace {

void InitializeWeights(Graph& graph, OpKind op, double stddev, absl::string_view suffix = "") {
  for (const Node& node : graph.nodes) {
    if (node.op != op || !absl::EndsWith(node.name, suffix)) continue;
    graph.value(node.inputs[1]).initializer = {Initializer::Kind::kNormal, stddev};
  }
}

}  // namespace

void InitializeConvolutionsByFanOut(Graph& graph) {
  for (const Node& node : graph.nodes) {
    if (node.op != OpKind::kConv2d) continue;
    Value& weight = graph.value(node.inputs[1]);
    const int64_t fan_out = ElementCount(weight.shape) / weight.shape[1];
    weight.initializer = {Initializer::Kind::kNormal, std::sqrt(2 / static_cast<double>(fan_out))};
  }
}

void InitializeConvolutions(Graph& graph, double stddev) {
  InitializeWeights(graph, OpKind::kConv2d, stddev);
}

void InitializeLinears(Graph& graph, double stddev, absl::string_view suffix) {
  InitializeWeights(graph, OpKind::kLinear, stddev, suffix);
}

void InitializeEmbeddings(Graph& graph, double stddev) {
  InitializeWeights(graph, OpKind::kEmbedding, stddev);
  InitializeWeights(graph, OpKind::kPositionEmbedding, stddev);
}

void InitializeBiases(Graph& graph, double value) {
  for (const Node& node : graph.nodes) {
    if (node.op != OpKind::kConv2d && node.op != OpKind::kLinear) continue;
    if (node.inputs.size() < 3) continue;
    graph.value(node.inputs[2]).initializer = {Initializer::Kind::kConstant, value};
  }
}

}  // namespace trainyard::engine
