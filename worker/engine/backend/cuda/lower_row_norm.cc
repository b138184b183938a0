// Lowers layer_norm and group_norm, whose statistics are taken within a row.
#include "worker/engine/backend/cuda/kernels/norm.h"
#include "worker/engine/backend/cuda/kernels/sequence.h"
#include "worker/engine/backend/cuda/lower_ops.h"
#include "worker/engine/backend/cuda/taken_node.h"

namespace trainyard::engine::cuda {
namespace {

// The places of the operands of a norm over rows.
struct RowNormPlaces {
  Place x, y;
  BufferId mean = kNoBuffer;
  BufferId inverse = kNoBuffer;
  const float* weight = nullptr;
  const float* bias = nullptr;

  Buffers buffers() const { return {x.buffer, y.buffer, mean, inverse}; }
};

// Places the operands of a norm that has this many statistics of each kind.
RowNormPlaces PlaceRowNorm(Lowering& lowering, const Node& node, int64_t statistics) {
  RowNormPlaces at;
  at.x = lowering.PlaceOf(node.inputs[0]);
  at.y = lowering.MakeOutput(node);
  at.mean = lowering.PlainBuffer(node.outputs[1], statistics * SizeOf(Type::kF32));
  at.inverse = lowering.PlainBuffer(node.outputs[2], statistics * SizeOf(Type::kF32));
  at.weight = lowering.Parameter(node.inputs[1]);
  at.bias = lowering.Parameter(node.inputs[2]);
  return at;
}

// The places of the operands of the gradient of such a norm.
struct RowNormGradientPlaces {
  Place dy, x, addend, dx;
  BufferId mean = kNoBuffer;
  BufferId inverse = kNoBuffer;
  BufferId workspace = kNoBuffer;
  const float* weight = nullptr;
  float* dweight = nullptr;
  float* dbias = nullptr;

  Buffers buffers() const {
    return {dy.buffer, x.buffer, addend.buffer, dx.buffer, mean, inverse, workspace};
  }
};

// `taken` is the sum that follows the gradient, if the gradient makes it as well.
RowNormGradientPlaces PlaceRowNormGradient(Lowering& lowering, const Node& node,
                                           int64_t workspace_bytes, const TakenNode& taken = {}) {
  RowNormGradientPlaces at;
  at.dy = lowering.PlaceOf(node.inputs[0]);
  at.x = lowering.PlaceOf(node.inputs[1]);
  at.weight = lowering.Parameter(node.inputs[2]);
  at.mean = lowering.PlainBufferOf(node.inputs[3]);
  at.inverse = lowering.PlainBufferOf(node.inputs[4]);
  if (taken.node != nullptr) {
    at.addend = lowering.PlaceOf(taken.addend);
    at.dx = lowering.MakeOutput(*taken.node);
    lowering.taken.insert(taken.node);
  } else if (node.outputs[0] != kNoValue) {
    at.dx = lowering.MakeOutput(node);
  }
  at.dweight = lowering.Sums(node.outputs[1]);
  at.dbias = lowering.Sums(node.outputs[2]);
  at.workspace = lowering.AddScratch(workspace_bytes);
  return at;
}

}  // namespace

absl::Status LowerLayerNorm(Lowering& lowering, const Node& node) {
  const int64_t count = lowering.Pixels(node.outputs[0]);
  const int64_t channels = lowering.Channels(node.outputs[0]);
  const RowNormPlaces at = PlaceRowNorm(lowering, node, count);
  const auto eps = static_cast<float>(node.layer<layers::LayerNorm>().eps);
  lowering.EmitKernel(
      node,
      [=, program = &lowering.program()](const Enqueue& how) {
        LayerNormForward(program->At(at.x), at.weight, at.bias, eps, program->At(at.y),
                         program->ptr<float>(at.mean), program->ptr<float>(at.inverse), count,
                         channels, how.stream);
      },
      at.buffers());
  return absl::OkStatus();
}

absl::Status LowerLayerNormGradient(Lowering& lowering, const Node& node) {
  const int64_t count = lowering.Pixels(node.inputs[1]);
  const int64_t channels = lowering.Channels(node.inputs[1]);
  const TakenNode taken = FindTakenSum(lowering, node);
  const RowNormGradientPlaces at =
      PlaceRowNormGradient(lowering, node, LayerNormWorkspace(count, channels), taken);
  lowering.EmitKernel(node,
                      [=, program = &lowering.program()](const Enqueue& how) {
                        LayerNormGradient(program->At(at.dy), program->At(at.x), at.weight,
                                          program->ptr<float>(at.mean),
                                          program->ptr<float>(at.inverse), program->At(at.addend),
                                          program->At(at.dx), at.dweight, at.dbias, how.adds, count,
                                          channels, program->ptr<void>(at.workspace), how.stream);
                      },
                      at.buffers(),
                      {.kernels = 2,
                       .bytes = 2 * static_cast<double>(LayerNormWorkspace(count, channels)),
                       .taken = taken.node});
  return absl::OkStatus();
}

absl::Status LowerGroupNorm(Lowering& lowering, const Node& node) {
  const auto& options = node.layer<layers::GroupNorm>();
  const GroupNormShape shape = {lowering.Image(node.outputs[0]), options.groups};
  const RowNormPlaces at = PlaceRowNorm(lowering, node, lowering.rows() * options.groups);
  const auto eps = static_cast<float>(options.eps);
  const bool clears = lowering.ClearsPadding(at.y, node.outputs[0]);
  lowering.EmitKernel(
      node,
      [=, program = &lowering.program()](const Enqueue& how) {
        GroupNormForward(shape, program->At(at.x), at.weight, at.bias, eps, program->At(at.y),
                         program->ptr<float>(at.mean), program->ptr<float>(at.inverse), clears,
                         how.stream);
      },
      at.buffers());
  return absl::OkStatus();
}

absl::Status LowerGroupNormGradient(Lowering& lowering, const Node& node) {
  const ValueId x = node.inputs[1];
  const GroupNormShape shape = {lowering.Image(x), node.layer<layers::GroupNorm>().groups};
  const RowNormGradientPlaces at = PlaceRowNormGradient(lowering, node, GroupNormWorkspace(shape));
  const bool clears = at.dx.buffer != kNoBuffer && lowering.ClearsPadding(at.dx, x);
  lowering.EmitKernel(node,
                      [=, program = &lowering.program()](const Enqueue& how) {
                        GroupNormBackward(shape, program->At(at.dy), program->At(at.x), at.weight,
                                          program->ptr<float>(at.mean),
                                          program->ptr<float>(at.inverse), program->At(at.dx),
                                          at.dweight, at.dbias, how.adds, clears,
                                          program->ptr<void>(at.workspace), how.stream);
                      },
                      at.buffers(), {.kernels = 2});
  return absl::OkStatus();
}

}  // namespace trainyard::engine::cuda
