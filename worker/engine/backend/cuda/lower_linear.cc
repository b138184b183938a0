// Lowers linear layers to cuBLASLt. Weights are read in the type of the activations; their
// gradients are f32, in the reduction arena.
#include <algorithm>

#include "common/base/status_macros.h"
#include "worker/engine/backend/cuda/blas/matmul.h"
#include "worker/engine/backend/cuda/lower_ops.h"

namespace trainyard::engine::cuda {

namespace {

// Returns null if nothing can be run.
absl::StatusOr<const blas::Matmul*> FindProduct(Lowering& lowering,
                                                const blas::MatmulProblem& problem) {
  if (lowering.target().products == nullptr) return nullptr;
  return lowering.target().products->Find(problem, lowering.target().effort);
}

int64_t WorkspaceOf(const blas::Matmul* product) {
  return product == nullptr ? blas::MatmulOptions().workspace_bytes_max
                            : product->workspace_bytes();
}

// Returns what a product launches and moves whose output is `output`.
Traffic TrafficOf(Lowering& lowering, const blas::Matmul* product, ValueId output) {
  if (product == nullptr || !product->has_own_epilogue()) return {};
  return {.kernels = 2, .more_bytes = 2 * lowering.Bytes(output)};
}

}  // namespace

absl::Status LowerLinear(Lowering& lowering, const Node& node) {
  const ValueId output = node.outputs[0];
  const Place x = lowering.PlaceOf(node.inputs[0]);
  const WeightCopy& copy = lowering.weights().copy({node.inputs[1]});
  const bool is_exact =
      output == lowering.step().graph.logits && lowering.Channels(output) <= kExactLogitsMax;
  const Place y = is_exact ? lowering.MakePlace(output, Type::kF32) : lowering.MakeOutput(node);
  const void* bias = nullptr;
  if (node.inputs.size() > 2) {
    bias = y.type == Type::kF32 ? lowering.Parameter(node.inputs[2])
                                : lowering.weights().copy({node.inputs[2]}).data;
  }
  TY_ASSIGN_OR_RETURN(
      const blas::Matmul* const product,
      FindProduct(lowering, {.m = lowering.Pixels(output),
                             .n = lowering.Channels(output),
                             .k = lowering.Channels(node.inputs[0]),
                             .b_transposed = !lowering.value(node.inputs[1]).is_transposed,
                             .input = lowering.target().type,
                             .output = y.type,
                             .a_stride = x.stride,
                             .b_stride = copy.stride,
                             .d_stride = y.stride,
                             .tf32 = lowering.target().tf32,
                             .bias = bias != nullptr,
                             .relu = node.relu}));
  const BufferId workspace = lowering.AddScratch(WorkspaceOf(product));
  const void* const weight = copy.data;
  lowering.Emit(
      node,
      [=, program = &lowering.program()](const Enqueue& how) {
        return product->Run(program->At(x).data, weight, bias, program->At(y).data,
                            program->ptr<void>(workspace), how.stream);
      },
      {x.buffer, y.buffer, workspace}, TrafficOf(lowering, product, output));
  return absl::OkStatus();
}

absl::Status LowerLinearInputGradient(Lowering& lowering, const Node& node) {
  const ValueId output = node.outputs[0];
  const Place dy = lowering.PlaceOf(node.inputs[0]);
  const WeightCopy& copy = lowering.weights().copy({node.inputs[1]});
  const Place dx = lowering.MakeOutput(node);
  TY_ASSIGN_OR_RETURN(
      const blas::Matmul* const product,
      FindProduct(lowering, {.m = lowering.Pixels(output),
                             .n = lowering.Channels(output),
                             .k = lowering.Channels(node.inputs[0]),
                             .b_transposed = lowering.value(node.inputs[1]).is_transposed,
                             .input = lowering.target().type,
                             .output = lowering.target().type,
                             .a_stride = dy.stride,
                             .b_stride = copy.stride,
                             .d_stride = dx.stride,
                             .tf32 = lowering.target().tf32}));
  const BufferId workspace = lowering.AddScratch(WorkspaceOf(product));
  const void* const weight = copy.data;
  lowering.Emit(node,
                [=, program = &lowering.program()](const Enqueue& how) {
                  return product->Run(program->At(dy).data, weight, nullptr, program->At(dx).data,
                                      program->ptr<void>(workspace), how.stream);
                },
                {dy.buffer, dx.buffer, workspace});
  return absl::OkStatus();
}

absl::Status LowerLinearParameterGradient(Lowering& lowering, const Node& node) {
  const Place dy = lowering.PlaceOf(node.inputs[0]);
  const Place x = lowering.PlaceOf(node.inputs[1]);
  const ValueId gradient = node.outputs[0];
  // dweight [out, in] = dy^T x. For a transposed weight it is [in, out] = x^T dy.
  const bool is_transposed = lowering.value(lowering.value(gradient).primal).is_transposed;
  const ValueId left = is_transposed ? node.inputs[1] : node.inputs[0];
  const ValueId right = is_transposed ? node.inputs[0] : node.inputs[1];
  const Place a = lowering.PlaceOf(left);
  const Place b = lowering.PlaceOf(right);
  blas::MatmulProblem problem = {.m = lowering.Channels(left),
                                 .n = lowering.Channels(right),
                                 .k = lowering.Pixels(left),
                                 .a_transposed = true,
                                 .input = lowering.target().type,
                                 .output = Type::kF32,
                                 .a_stride = a.stride,
                                 .b_stride = b.stride,
                                 .d_stride = lowering.Channels(right),
                                 .tf32 = lowering.target().tf32};
  TY_ASSIGN_OR_RETURN(const blas::Matmul* const writing, FindProduct(lowering, problem));
  problem.adds = true;
  TY_ASSIGN_OR_RETURN(const blas::Matmul* const adding, FindProduct(lowering, problem));
  const BufferId workspace =
      lowering.AddScratch(std::max(WorkspaceOf(writing), WorkspaceOf(adding)));
  float* const sums = lowering.Sums(gradient);
  lowering.Emit(node,
                [=, program = &lowering.program()](const Enqueue& how) {
                  const blas::Matmul* const product = how.adds ? adding : writing;
                  return product->Run(program->At(a).data, program->At(b).data, nullptr, sums,
                                      program->ptr<void>(workspace), how.stream);
                },
                {dy.buffer, x.buffer, workspace});
  if (node.outputs.size() > 1) {
    lowering.EmitBiasGradient(node, node.inputs[0], 0, node.outputs[1]);
  }
  return absl::OkStatus();
}

}  // namespace trainyard::engine::cuda
