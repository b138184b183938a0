// Finds the channel at which each input of a concatenation begins.
#include "worker/engine/backend/concat_parts.h"

#include <numeric>

namespace trainyard::engine {

std::map<ValueId, ConcatPart> PlacedParts(const Graph& graph) {
  std::map<ValueId, ConcatPart> parts;
  for (const Node& node : graph.nodes) {
    if (node.op != OpKind::kConcat) continue;
    int64_t divisor = 0;
    int64_t first_channel = 0;
    for (const ValueId input : node.inputs) {
      divisor = std::gcd(divisor, first_channel);
      first_channel += graph.value(input).shape[0];
    }
    first_channel = 0;
    for (size_t i = 0; i < node.concat().placed.size(); ++i) {
      if (node.concat().placed[i]) {
        parts[node.inputs[i]] = {node.outputs[0], first_channel, divisor};
      }
      first_channel += graph.value(node.inputs[i]).shape[0];
    }
  }
  return parts;
}

}  // namespace trainyard::engine
