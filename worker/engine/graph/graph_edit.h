// Helpers with which passes find patterns in a step graph and replace them.
#pragma once

#include <utility>
#include <vector>

#include "worker/engine/graph/step_graph.h"

namespace trainyard::engine {

inline constexpr int kNobody = -1;

// The nodes that compute and read each value, by number.
struct Uses {
  std::vector<int> producer;
  std::vector<std::vector<int>> consumers;

  explicit Uses(const StepGraph& step)
      : producer(step.graph.values.size(), kNobody), consumers(step.graph.values.size()) {
    for (size_t i = 0; i < step.graph.nodes.size(); ++i) {
      for (ValueId input : step.graph.nodes[i].inputs) {
        consumers[static_cast<size_t>(input)].push_back(static_cast<int>(i));
      }
      for (ValueId output : step.graph.nodes[i].outputs) {
        if (output != kNoValue) {
          producer[static_cast<size_t>(output)] = static_cast<int>(i);
        }
      }
    }
    for (ValueId kept : step.kept) {
      consumers[static_cast<size_t>(kept)].push_back(kNobody);
    }
  }

  // Returns the only node that reads the value, or kNobody.
  int SoleConsumer(ValueId value) const {
    const std::vector<int>& nodes = consumers[static_cast<size_t>(value)];
    return nodes.size() == 1 ? nodes[0] : kNobody;
  }
};

// Appends an input and returns its place.
inline int Append(std::vector<ValueId>& inputs, ValueId value) {
  inputs.push_back(value);
  return static_cast<int>(inputs.size()) - 1;
}

// Drops the marked nodes.
inline void Erase(std::vector<Node>& nodes, const std::vector<bool>& erased) {
  std::vector<Node> left;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (!erased[i]) {
      left.push_back(std::move(nodes[i]));
    }
  }
  nodes = std::move(left);
}

}  // namespace trainyard::engine
