// Every op as plain loops. Tensors are dense, row-major, rows first: x: [N, C, H, W].
#pragma once

#include <cstdint>
#include <vector>

#include "worker/engine/graph/dropout.h"
#include "worker/engine/graph/graph.h"

namespace trainyard::engine::reference {

// What a node works on. Pointers follow node.inputs and node.outputs; null where not wanted.
template <class T>
struct Operands {
  const Graph& graph;
  const Node& node;
  int64_t rows = 0;
  std::vector<const T*> inputs;
  std::vector<T*> outputs;
  const int32_t* labels = nullptr;  // [rows] or [rows, T], for the loss
  double gradient_scale = 0;        // weight / labels, for the gradient of the loss
  RandomPosition position = {};     // for dropout
  const float* stage_output_gradient = nullptr;

  const Shape& input_shape(size_t i) const { return graph.value(node.inputs[i]).shape; }
  const Shape& output_shape(size_t i) const { return graph.value(node.outputs[i]).shape; }
};

template <class T>
void RunNode(const Operands<T>& operands);

extern template void RunNode<float>(const Operands<float>&);
extern template void RunNode<double>(const Operands<double>&);

}  // namespace trainyard::engine::reference
