// Emits the gradient of a norm. Its inputs and outputs are the same for all norms.
#pragma once

#include "worker/engine/graph/autodiff.h"

namespace trainyard::engine {

// For a node (x, weight, bias, ...) -> y and two statistics, emits
//   (dy, x, weight, the two statistics) -> dx, dweight, dbias
template <OpKind kGradient>
void EmitNormGradient(Autodiff& autodiff, const Node& node) {
  const ValueId dy = autodiff.GradientOf(node.outputs[0]);
  const ValueId x = node.inputs[0];
  const ValueId dx = autodiff.Wants(x) ? autodiff.NewGradient(x) : kNoValue;
  const ValueId dweight = autodiff.NewGradient(node.inputs[1]);
  const ValueId dbias = autodiff.NewGradient(node.inputs[2]);
  autodiff.Emit({kGradient,
                 node.name,
                 {dy, x, node.inputs[1], node.outputs[1], node.outputs[2]},
                 {dx, dweight, dbias},
                 node.attributes});
  if (dx != kNoValue) autodiff.Contribute(x, dx);
}

}  // namespace trainyard::engine
