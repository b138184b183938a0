// Lowers group_norm, whose statistics are those of each row.
#include "worker/engine/backend/cuda/kernels/norm.h"
#include "worker/engine/backend/cuda/lower_ops.h"

namespace trainyard::engine::cuda {

absl::Status LowerGroupNorm(Lowering& lowering, const Node& node) {
  const ValueId output = node.outputs[0];
  const auto& options = node.layer<layers::GroupNorm>();
  const Place x = lowering.PlaceOf(node.inputs[0]);
  const Place y = lowering.MakeOutput(node);
  const GroupNormShape shape = {lowering.Image(output), options.groups};
  const int64_t statistic_bytes = lowering.rows() * options.groups * SizeOf(Type::kF32);
  const BufferId mean = lowering.PlainBuffer(node.outputs[1], statistic_bytes);
  const BufferId inverse = lowering.PlainBuffer(node.outputs[2], statistic_bytes);
  const float* const weight = lowering.Parameter(node.inputs[1]);
  const float* const bias = lowering.Parameter(node.inputs[2]);
  const auto eps = static_cast<float>(options.eps);
  const bool clears = lowering.ClearsPadding(y, output);
  lowering.EmitKernel(node,
                      [=, program = &lowering.program()](const Enqueue& how) {
                        GroupNormForward(shape, program->At(x), weight, bias, eps, program->At(y),
                                         program->ptr<float>(mean), program->ptr<float>(inverse),
                                         clears, how.stream);
                      },
                      {x.buffer, y.buffer, mean, inverse});
  return absl::OkStatus();
}

absl::Status LowerGroupNormGradient(Lowering& lowering, const Node& node) {
  const ValueId x_id = node.inputs[1];
  const Place dy = lowering.PlaceOf(node.inputs[0]);
  const Place x = lowering.PlaceOf(x_id);
  const float* const weight = lowering.Parameter(node.inputs[2]);
  const BufferId mean = lowering.PlainBufferOf(node.inputs[3]);
  const BufferId inverse = lowering.PlainBufferOf(node.inputs[4]);
  const Place dx = node.outputs[0] == kNoValue ? Place{} : lowering.MakeOutput(node);
  const bool clears = dx.buffer != kNoBuffer && lowering.ClearsPadding(dx, x_id);
  float* const dweight = lowering.Sums(node.outputs[1]);
  float* const dbias = lowering.Sums(node.outputs[2]);
  const GroupNormShape shape = {lowering.Image(x_id), node.layer<layers::GroupNorm>().groups};
  const BufferId workspace = lowering.AddScratch(GroupNormWorkspace(shape));
  lowering.EmitKernel(node,
                      [=, program = &lowering.program()](const Enqueue& how) {
                        GroupNormBackward(shape, program->At(dy), program->At(x), weight,
                                          program->ptr<float>(mean), program->ptr<float>(inverse),
                                          program->At(dx), dweight, dbias, how.adds, clears,
                                          program->ptr<void>(workspace), how.stream);
                      },
                      {dy.buffer, x.buffer, mean, inverse, dx.buffer, workspace});
  return absl::OkStatus();
}

}  // namespace trainyard::engine::cuda
