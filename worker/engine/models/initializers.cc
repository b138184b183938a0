#include "worker/engine/models/initializers.h"

#include <cmath>

namespace trainyard::engine {

void InitializeConvolutionsByFanOut(Graph& graph) {
  for (const Node& node : graph.nodes) {
    if (node.op != OpKind::kConv2d) continue;
    Value& weight = graph.value(node.inputs[1]);
    const auto fan_out = static_cast<double>(ElementCount(weight.shape) / weight.shape[1]);
    weight.initializer = {Initializer::Kind::kNormal, std::sqrt(2 / fan_out)};
  }
}

}  // namespace trainyard::engine
