// Implements reverse-mode differentiation by appending explicit backward nodes to a step graph.
//
// Each op's gradient function (ops/) is called once, after those of everything that uses its
// outputs. It reads GradientOf its outputs, emits nodes, and contributes to its inputs'. A value
// with several uses gets the sum of their gradients, by add nodes.
#pragma once

#include <set>
#include <vector>

#include "worker/engine/graph/step_graph.h"

namespace trainyard::engine {

class Autodiff {
 public:
  // Borrows `step`, whose graph holds the forward nodes.
  Autodiff(StepGraph& step, bool input_gradient);

  // Emits the gradients of the loss with respect to all parameters (and to an input of real numbers
  // if that was requested).
  void Run();

  // These are for the ops. Returns true if the gradient with respect to the value leads to
  // something that is needed.
  bool Wants(ValueId value) const { return wanted_[static_cast<size_t>(value)]; }
  const Shape& ShapeOf(ValueId value) const { return step_.graph.value(value).shape; }
  // Returns the complete gradient of an output.
  ValueId GradientOf(ValueId value) const;
  // Returns a new value of the primal's shape. That of a parameter goes into the reduction arena,
  // next in order. If several nodes use the parameter, all get the same value, in the place of the
  // last.
  ValueId NewGradient(ValueId primal);
  void Contribute(ValueId primal, ValueId gradient);
  void Emit(Node node);
  // Emits `op` for a node with one input x: (gradient of the first output, `saved`...) -> dx, with
  // the attributes of the node. Contributes dx to the gradient of x. Does nothing if that is not
  // wanted.
  void EmitInputGradient(const Node& node, OpKind op, const std::vector<ValueId>& saved = {});

 private:
  StepGraph& step_;
  std::vector<bool> wanted_;  // by forward value
  // The number of gradients of a parameter that are still to come, by forward value.
  std::vector<int> uses_left_;
  std::vector<ValueId> gradients_;  // by forward value
  // Gradients of parameters of which a node has made all or a part.
  std::set<ValueId> written_;
};

}  // namespace trainyard::engine
