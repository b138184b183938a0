// Builds the networks that have names from their stacks, and says how their parameters start. A
// parameter without a rule here starts by PyTorch's default.
#include <cmath>

#include "common/base/status_macros.h"
#include "worker/engine/models/initializers.h"
#include "worker/engine/models/layers.h"
#include "worker/engine/models/models.h"

namespace trainyard::engine {
namespace {

template <class Spec>
absl::StatusOr<Graph> BuildSpec(const Spec& spec) {
  TY_ASSIGN_OR_RETURN(const layers::Stack stack, networks::StackOf(spec));
  return BuildStack(stack);
}

// Starts the last batch norm of each block at 0. That is the one whose output is the first operand
// of a sum.
void ZeroLastNorms(Graph& graph) {
  for (const Node& sum : graph.nodes) {
    if (sum.op != OpKind::kAdd) continue;
    for (const Node& norm : graph.nodes) {
      if (norm.op != OpKind::kBatchNorm || norm.outputs[0] != sum.inputs[0]) continue;
      graph.value(norm.inputs[1]).initializer = {Initializer::Kind::kConstant, 0};
    }
  }
}

struct Builder {
  absl::StatusOr<Graph> operator()(const layers::Stack& stack) const { return BuildLayers(stack); }
  absl::StatusOr<Graph> operator()(const MlpSpec& spec) const { return BuildMlp(spec); }
  absl::StatusOr<Graph> operator()(const ConvnetSpec& spec) const { return BuildConvnet(spec); }
  absl::StatusOr<Graph> operator()(const ResnetSpec& spec) const { return BuildResnet(spec); }
  absl::StatusOr<Graph> operator()(const WideResnetSpec& spec) const {
    return BuildWideResnet(spec);
  }
  absl::StatusOr<Graph> operator()(const AlexnetSpec& spec) const { return BuildAlexnet(spec); }
  absl::StatusOr<Graph> operator()(const VggSpec& spec) const { return BuildVgg(spec); }
  absl::StatusOr<Graph> operator()(const GooglenetSpec& spec) const { return BuildGooglenet(spec); }
  absl::StatusOr<Graph> operator()(const Gpt2Spec& spec) const { return BuildGpt2(spec); }
};

}  // namespace

absl::StatusOr<Graph> BuildMlp(const MlpSpec& spec) {
  return BuildSpec(spec);
}

absl::StatusOr<Graph> BuildConvnet(const ConvnetSpec& spec) {
  return BuildSpec(spec);
}

absl::StatusOr<Graph> BuildResnet(const ResnetSpec& spec) {
  TY_ASSIGN_OR_RETURN(Graph graph, BuildSpec(spec));
  InitializeConvolutionsByFanOut(graph);
  if (spec.zero_init_residual) ZeroLastNorms(graph);
  return graph;
}

absl::StatusOr<Graph> BuildWideResnet(const WideResnetSpec& spec) {
  TY_ASSIGN_OR_RETURN(Graph graph, BuildSpec(spec));
  InitializeConvolutionsByFanOut(graph);
  return graph;
}

absl::StatusOr<Graph> BuildAlexnet(const AlexnetSpec& spec) {
  return BuildSpec(spec);
}

absl::StatusOr<Graph> BuildVgg(const VggSpec& spec) {
  TY_ASSIGN_OR_RETURN(Graph graph, BuildSpec(spec));
  InitializeConvolutionsByFanOut(graph);
  InitializeLinears(graph, 0.01);
  InitializeBiases(graph, 0);
  return graph;
}

absl::StatusOr<Graph> BuildGooglenet(const GooglenetSpec& spec) {
  TY_ASSIGN_OR_RETURN(Graph graph, BuildSpec(spec));
  if (spec.stem == Stem::kImagenet) {
    InitializeConvolutions(graph, 0.01);
    InitializeLinears(graph, 0.01);
  }
  return graph;
}

absl::StatusOr<Graph> BuildGpt2(const Gpt2Spec& spec) {
  constexpr double kStddev = 0.02;
  TY_ASSIGN_OR_RETURN(Graph graph, BuildSpec(spec));
  InitializeEmbeddings(graph, kStddev);
  InitializeLinears(graph, kStddev);
  InitializeBiases(graph, 0);
  // These end a half block, of which there are two in each layer.
  InitializeLinears(graph, kStddev / std::sqrt(2.0 * static_cast<double>(spec.layers)), ".c_proj");
  return graph;
}

absl::StatusOr<Graph> BuildNetwork(const networks::Network& network) {
  return std::visit(Builder(), network);
}

}  // namespace trainyard::engine
