// Reverse-mode differentiation: appends the backward nodes to a step graph, explicitly.
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

  // Emits the gradients of all parameters (and of an input of real numbers where asked for) of the
  // loss.
  void Run();

  // For the ops:
  // Whether the gradient with respect to the value leads to something wanted.
  bool Wants(ValueId value) const { return wanted_[static_cast<size_t>(value)]; }
  const Shape& ShapeOf(ValueId value) const { return step_.graph.value(value).shape; }
  // The complete gradient of an output.
  ValueId GradientOf(ValueId value) const;
  // A new value of the primal's shape. A parameter's goes into the reduction arena, next in order;
  // where several nodes use the parameter, all get the same value, in order of the last.
  ValueId NewGradient(ValueId primal);
  void Contribute(ValueId primal, ValueId gradient);
  void Emit(Node node);
  // For a node with one input x: emits `op`, (gradient of the first output, `saved`...) -> dx, with
  // the attributes of the node, and contributes dx, where anybody wants it.
  void EmitInputGradient(const Node& node, OpKind op, const std::vector<ValueId>& saved = {});

 private:
  StepGraph& step_;
  std::vector<bool> wanted_;        // by forward value
  std::vector<int> uses_left_;      // of parameters, by forward value: gradients still to come
  std::vector<ValueId> gradients_;  // by forward value
  std::set<ValueId> written_;       // gradients of parameters that a node has made, or a part
};

}  // namespace trainyard::engine
