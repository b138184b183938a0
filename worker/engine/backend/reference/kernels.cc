// Calls the function of a node's op.
#include "worker/engine/backend/reference/kernels.h"

namespace trainyard::engine::reference {

template <class T>
absl::Status RunNode(const Operands<T>& operands) {
  static constexpr absl::Status (*kRuns[])(const Operands<T>&) = {
#define TY_OP(kind, name) Run##kind<T>,
#include "worker/engine/graph/ops.def"
#undef TY_OP
  };
  return kRuns[static_cast<size_t>(operands.node.op)](operands);
}

template absl::Status RunNode<float>(const Operands<float>&);
template absl::Status RunNode<double>(const Operands<double>&);

}  // namespace trainyard::engine::reference
