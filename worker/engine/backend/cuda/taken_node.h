// Finds the node whose work the call of the node before it can do as well: GELU by tanh, its
// gradient, or a sum.
#pragma once

#include "worker/engine/backend/cuda/blas/matmul_problem.h"
#include "worker/engine/backend/cuda/lowering.h"

namespace trainyard::engine::cuda {

struct TakenNode {
  const Node* node = nullptr;  // null if there is none
  blas::Activation activation = blas::Activation::kNone;
  // True if other nodes read the input of GELU, too.
  bool keeps_input = false;
  // The value that is added to the product.
  ValueId addend = kNoValue;
};

// Returns the sum of the node's first output and an older value if the sum follows at once, and
// nothing else reads that output.
TakenNode FindTakenSum(const Lowering& lowering, const Node& node);

// Returns the node that follows `product`, which is a linear or linear_input_gradient, if the
// product in 16 bits can take it over. Then everything else that the node reads has its place.
// Products in f32 take nothing over.
TakenNode FindTakenNode(const Lowering& lowering, const Node& product);

}  // namespace trainyard::engine::cuda
