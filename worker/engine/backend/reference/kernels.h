// Computes every op as plain loops. Tensors are dense, row-major, rows first: x: [N, C, H, W].
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "worker/engine/backend/rank_statistics.h"
#include "worker/engine/backend/row_groups.h"
#include "worker/engine/graph/dropout.h"
#include "worker/engine/graph/graph.h"

namespace trainyard::engine::reference {

// The operands of a node. Pointers follow node.inputs and node.outputs, and are null for values
// that are not needed.
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
  RowGroups groups = {};            // for batch_norm
  RankStatistics* ranks = nullptr;  // if not null, statistics are taken over all ranks
  const float* stage_output_gradient = nullptr;

  const Shape& input_shape(size_t i) const { return graph.value(node.inputs[i]).shape; }
  const Shape& output_shape(size_t i) const { return graph.value(node.outputs[i]).shape; }
};

// Returns the options of a node that are those of a layer in a spec.
template <class Layer>
const Layer& LayerOf(const Node& node) {
  return node.layer<Layer>();
}

// Returns the number of vectors in `rows` rows of a value [F] or [T, F].
inline int64_t VectorCount(int64_t rows, const Shape& shape) {
  return rows * (ElementCount(shape) / shape.back());
}

template <class T>
T Rectified(T value) {
  return value < 0 ? T{0} : value;  // a NaN stays
}

// Declares one function for each op. It fails if an exchange between ranks fails.
#define TY_OP(kind, name) \
  template <class T>      \
  absl::Status Run##kind(const Operands<T>& operands);
#include "worker/engine/graph/ops.def"
#undef TY_OP

// Defines Run<kind> for both number types by `function`, a template that cannot fail.
#define TY_REFERENCE_OP(kind, function)                    \
  template <class T>                                       \
  absl::Status Run##kind(const Operands<T>& operands) {    \
    function(operands);                                    \
    return absl::OkStatus();                               \
  }                                                        \
  template absl::Status Run##kind(const Operands<float>&); \
  template absl::Status Run##kind(const Operands<double>&)

template <class T>
absl::Status RunNode(const Operands<T>& operands);

extern template absl::Status RunNode<float>(const Operands<float>&);
extern template absl::Status RunNode<double>(const Operands<double>&);

}  // namespace trainyard::engine::reference
