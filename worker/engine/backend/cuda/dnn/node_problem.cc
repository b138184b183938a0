// Reads the shapes of a problem from the values of its node.
#include "worker/engine/backend/cuda/dnn/node_problem.h"

#include "common/base/check.h"

namespace trainyard::engine::cuda::dnn {
namespace {

// The images at both ends of a convolution, whichever direction the node computes.
struct Ends {
  const Shape* x = nullptr;
  const Shape* y = nullptr;
};

Ends EndsOf(const engine::Graph& graph, const Node& node) {
  const auto shape = [&](ValueId id) { return &graph.value(id).shape; };
  switch (node.op) {
    case OpKind::kConv2d:
      return {shape(node.inputs[0]), shape(node.outputs[0])};
    case OpKind::kConv2dInputGradient:
      return {shape(node.outputs[0]), shape(node.inputs[0])};
    case OpKind::kConv2dParameterGradient:
      return {shape(node.inputs[1]), shape(node.inputs[0])};
    default:
      TY_CHECK(false);
      return {};
  }
}

ConvProblem::Kind KindOf(OpKind op) {
  switch (op) {
    case OpKind::kConv2dInputGradient:
      return ConvProblem::Kind::kInputGradient;
    case OpKind::kConv2dParameterGradient:
      return ConvProblem::Kind::kWeightGradient;
    default:
      return ConvProblem::Kind::kForward;
  }
}

}  // namespace

int64_t ChannelsInMemory(int64_t channels, int64_t groups, Type type) {
  return groups == 1 ? PaddedChannels(channels, type) : channels;
}

ConvProblem ProblemOf(const StepGraph& step, const Node& node, int64_t rows, Type type, bool tf32) {
  const ConvAttributes& conv = node.conv();
  const Ends ends = EndsOf(step.graph, node);
  ConvProblem problem;
  problem.kind = KindOf(node.op);
  problem.type = type;
  problem.tf32 = type == Type::kF32 && tf32;
  problem.rows = rows;
  problem.channels = ChannelsInMemory((*ends.x)[0], conv.groups, type);
  problem.height = (*ends.x)[1];
  problem.width = (*ends.x)[2];
  problem.out_channels = ChannelsInMemory((*ends.y)[0], conv.groups, type);
  problem.out_height = (*ends.y)[1];
  problem.out_width = (*ends.y)[2];
  problem.kernel = conv.kernel;
  problem.stride = conv.stride;
  problem.padding = conv.padding;
  problem.dilation = conv.dilation;
  problem.groups = conv.groups;
  problem.x_stride = PaddedChannels((*ends.x)[0], type);
  problem.y_stride = PaddedChannels((*ends.y)[0], type);
  if (node.op == OpKind::kConv2d) {
    problem.bias = node.inputs.size() > 1 + static_cast<size_t>(conv.weights);
    problem.relu = node.relu;
  }
  return problem;
}

AttentionProblem AttentionProblemOf(const StepGraph& step, const Node& node, int64_t rows,
                                    Type type) {
  TY_CHECK(node.op == OpKind::kAttention || node.op == OpKind::kAttentionGradient);
  AttentionProblem problem;
  problem.is_gradient = node.op == OpKind::kAttentionGradient;
  // x is [positions, 3 heads width].
  const Shape& x = step.graph.value(node.inputs[problem.is_gradient ? 1 : 0]).shape;
  problem.type = type;
  problem.rows = rows;
  problem.positions = x[0];
  problem.heads = node.layer<layers::Attention>().heads;
  problem.width = x[1] / 3 / problem.heads;
  return problem;
}

}  // namespace trainyard::engine::cuda::dnn
