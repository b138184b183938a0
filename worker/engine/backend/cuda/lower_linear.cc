// Linear layers by cuBLASLt. Weights are read in the type of the activations; their gradients are
// f32, in the reduction arena.
#include <algorithm>

#include "common/base/status_macros.h"
#include "worker/engine/backend/cuda/compiler.h"

namespace trainyard::engine::cuda {

absl::StatusOr<const blas::Matmul*> Compiler::FindProduct(
    const blas::MatmulProblem& problem) const {
  if (target_.products == nullptr) return nullptr;
  return target_.products->Find(problem);
}

namespace {

int64_t WorkspaceOf(const blas::Matmul* product) {
  return product == nullptr ? blas::MatmulOptions().workspace_bytes_max
                            : product->workspace_bytes();
}

}  // namespace

absl::Status Compiler::LowerLinear(const Node& node) {
  const ValueId output = node.outputs[0];
  const Place x = PlaceOf(node.inputs[0]);
  const WeightCopy& copy = weights_.copy({node.inputs[1]});
  const bool is_exact = output == step_.graph.logits && Channels(output) <= kExactLogitsMax;
  const Place y = is_exact ? MakePlace(output, Type::kF32) : MakeOutput(node);
  const float* const bias = node.inputs.size() > 2 ? Parameter(node.inputs[2]) : nullptr;
  TY_ASSIGN_OR_RETURN(const blas::Matmul* const product,
                      FindProduct({.m = Pixels(output),
                                   .n = Channels(output),
                                   .k = Channels(node.inputs[0]),
                                   .b_transposed = !value(node.inputs[1]).is_transposed,
                                   .input = target_.type,
                                   .output = y.type,
                                   .a_stride = x.stride,
                                   .b_stride = copy.stride,
                                   .d_stride = y.stride,
                                   .tf32 = target_.tf32,
                                   .bias = bias != nullptr,
                                   .relu = node.relu}));
  const BufferId workspace = AddScratch(WorkspaceOf(product));
  const void* const weight = copy.data;
  Emit(node,
       [=, program = &program_](const Enqueue& how) {
         return product->Run(program->At(x).data, weight, bias, program->At(y).data,
                             program->ptr<void>(workspace), how.stream);
       },
       {x.buffer, y.buffer, workspace});
  return absl::OkStatus();
}

absl::Status Compiler::LowerLinearInputGradient(const Node& node) {
  const ValueId output = node.outputs[0];
  const Place dy = PlaceOf(node.inputs[0]);
  const WeightCopy& copy = weights_.copy({node.inputs[1]});
  const Place dx = MakeOutput(node);
  TY_ASSIGN_OR_RETURN(const blas::Matmul* const product,
                      FindProduct({.m = Pixels(output),
                                   .n = Channels(output),
                                   .k = Channels(node.inputs[0]),
                                   .b_transposed = value(node.inputs[1]).is_transposed,
                                   .input = target_.type,
                                   .output = target_.type,
                                   .a_stride = dy.stride,
                                   .b_stride = copy.stride,
                                   .d_stride = dx.stride,
                                   .tf32 = target_.tf32}));
  const BufferId workspace = AddScratch(WorkspaceOf(product));
  const void* const weight = copy.data;
  Emit(node,
       [=, program = &program_](const Enqueue& how) {
         return product->Run(program->At(dy).data, weight, nullptr, program->At(dx).data,
                             program->ptr<void>(workspace), how.stream);
       },
       {dy.buffer, dx.buffer, workspace});
  return absl::OkStatus();
}

absl::Status Compiler::LowerLinearParameterGradient(const Node& node) {
  const Place dy = PlaceOf(node.inputs[0]);
  const Place x = PlaceOf(node.inputs[1]);
  const ValueId gradient = node.outputs[0];
  // dweight [out, in] = dy^T x; of a transposed one [in, out] = x^T dy.
  const bool is_transposed = value(value(gradient).primal).is_transposed;
  const ValueId left = is_transposed ? node.inputs[1] : node.inputs[0];
  const ValueId right = is_transposed ? node.inputs[0] : node.inputs[1];
  const Place a = PlaceOf(left);
  const Place b = PlaceOf(right);
  blas::MatmulProblem problem = {.m = Channels(left),
                                 .n = Channels(right),
                                 .k = Pixels(left),
                                 .a_transposed = true,
                                 .input = target_.type,
                                 .output = Type::kF32,
                                 .a_stride = a.stride,
                                 .b_stride = b.stride,
                                 .d_stride = Channels(right),
                                 .tf32 = target_.tf32};
  TY_ASSIGN_OR_RETURN(const blas::Matmul* const writing, FindProduct(problem));
  problem.adds = true;
  TY_ASSIGN_OR_RETURN(const blas::Matmul* const adding, FindProduct(problem));
  const BufferId workspace = AddScratch(std::max(WorkspaceOf(writing), WorkspaceOf(adding)));
  float* const sums = Sums(gradient);
  const bool adds = node.adds;
  Emit(node,
       [=, program = &program_](const Enqueue& how) {
         const blas::Matmul* const product = how.adds || adds ? adding : writing;
         return product->Run(program->At(a).data, program->At(b).data, nullptr, sums,
                             program->ptr<void>(workspace), how.stream);
       },
       {dy.buffer, x.buffer, workspace});
  if (node.outputs.size() > 1) {
    EmitBiasGradient(node, node.inputs[0], 0, node.outputs[1]);
  }
  return absl::OkStatus();
}

}  // namespace trainyard::engine::cuda
