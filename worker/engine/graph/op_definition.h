// Defines what every kind of op must state: its arithmetic, its traffic, its gradient, and where
// its outputs may lie. The definitions are in ops/, one file for each family of ops, beside the
// GraphBuilder methods that infer the shapes.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/engine/graph/graph.h"

namespace trainyard::engine {

class Autodiff;

// Returns the bytes of all inputs and outputs of the node, each read or written once.
double BytesOfAllTensors(const Graph& graph, const Node& node, int64_t rows);

struct OpDefinition {
  // Returns the floating-point operations. A multiplication with an addition counts as 2.
  double (*flops)(const Graph& graph, const Node& node, int64_t rows);
  // Emits the nodes that take the gradient of the outputs to the inputs. It is null for gradients.
  void (*gradient)(Autodiff& autodiff, const Node& node) = nullptr;
  // Returns the bytes read and written, as floats.
  double (*bytes)(const Graph& graph, const Node& node, int64_t rows) = BytesOfAllTensors;
  // Returns which output may be written over which input, the best choice first. An op may do so if
  // it looks at one element at a time, or reads all of the input before it writes. Null means none.
  std::vector<Node::Overwrite> (*overwrites)(const Node& node) = nullptr;
  // True if the output is the input seen in another shape: both are the same memory.
  bool is_alias = false;
};

const OpDefinition& Definition(OpKind op);

}  // namespace trainyard::engine
