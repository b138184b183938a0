// Lowers embeddings and attention. Attention goes to cuDNN if its gradients are known to be right
// and it has plans for both directions, and otherwise to our own kernels.
#include "common/base/status_macros.h"
#include "worker/engine/backend/cuda/dnn/attention_parts.h"
#include "worker/engine/backend/cuda/dnn/node_problem.h"
#include "worker/engine/backend/cuda/kernels/sequence.h"
#include "worker/engine/backend/cuda/lower_ops.h"
#include "worker/engine/backend/cuda/runtime/runtime.h"

namespace trainyard::engine::cuda {
namespace {

absl::StatusOr<dnn::AttentionParts> FindParts(Lowering& lowering, const Node& node,
                                              bool is_gradient) {
  dnn::AttentionProblem problem =
      dnn::AttentionProblemOf(lowering.step(), node, lowering.rows(), lowering.target().type);
  problem.is_gradient = is_gradient;
  return dnn::AttentionParts::Find(*lowering.target().planner, problem, lowering.target().effort);
}

// Returns true if a node writes its result over the value.
bool IsOverwritten(Lowering& lowering, ValueId id) {
  for (const Node& node : lowering.step().graph.nodes) {
    for (const Node::Overwrite& overwrite : node.overwrites) {
      if (node.inputs[static_cast<size_t>(overwrite.input)] == id) return true;
    }
  }
  return false;
}

// Finds the forward half for cuDNN. Returns NOT_FOUND, with the reason, if only our own kernels can
// compute the layer. Both halves must use the same implementation, since the two round differently.
absl::StatusOr<dnn::AttentionParts> FindForwardParts(Lowering& lowering, const Node& node) {
  if (IsOverwritten(lowering, node.outputs[0])) {
    return absl::NotFoundError("another node overwrites the output, which cuDNN's gradient reads");
  }
  TY_RETURN_IF_ERROR(FindParts(lowering, node, /*is_gradient=*/true).status());
  return FindParts(lowering, node, /*is_gradient=*/false);
}

}  // namespace

absl::Status LowerEmbedding(Lowering& lowering, const Node& node) {
  const ValueId output = node.outputs[0];
  const BufferId tokens = lowering.PlainBufferOf(node.inputs[0]);
  const float* const weight = lowering.Parameter(node.inputs[1]);
  const Place y = lowering.MakeOutput(node);
  const int64_t count = lowering.Pixels(output);
  const int64_t channels = lowering.Channels(output);
  lowering.EmitKernel(node,
                      [=, program = &lowering.program()](const Enqueue& how) {
                        EmbeddingForward(program->ptr<int32_t>(tokens), weight, program->At(y),
                                         count, channels, how.stream);
                      },
                      {tokens, y.buffer},
                      // It reads the rows of its tokens only.
                      {.bytes = lowering.Bytes(node.inputs[0]) + lowering.Bytes(output) +
                                static_cast<double>(count * channels * SizeOf(Type::kF32)),
                       .has_tensors = false});
  return absl::OkStatus();
}

absl::Status LowerEmbeddingGradient(Lowering& lowering, const Node& node) {
  const Place dy = lowering.PlaceOf(node.inputs[0]);
  const BufferId tokens = lowering.PlainBufferOf(node.inputs[1]);
  const ValueId gradient = node.outputs[0];
  const Shape& table = lowering.value(lowering.value(gradient).primal).shape;
  float* const sums = lowering.Sums(gradient);
  const int64_t count = lowering.Pixels(node.inputs[0]);
  const int64_t vocabulary = table[0];
  const int64_t channels = table[1];
  const BufferId workspace = lowering.AddScratch(EmbeddingGradientWorkspace(count, channels));
  lowering.Emit(
      node,
      [=, program = &lowering.program()](const Enqueue& how) {
        return CudaStatus(
            EmbeddingGradient(program->ptr<int32_t>(tokens), program->At(dy), sums, how.adds, count,
                              vocabulary, channels, program->ptr<void>(workspace), how.stream),
            "sorting the tokens");
      },
      {dy.buffer, tokens, workspace}, {.kernels = EmbeddingGradientKernels(count, vocabulary)});
  return absl::OkStatus();
}

absl::Status LowerPositionEmbedding(Lowering& lowering, const Node& node) {
  const ValueId output = node.outputs[0];
  const Place x = lowering.PlaceOf(node.inputs[0]);
  const float* const weight = lowering.Parameter(node.inputs[1]);
  const Place y = lowering.MakeOutput(node);
  const int64_t positions = lowering.PixelsPerRow(output);
  const int64_t channels = lowering.Channels(output);
  const int64_t rows = lowering.rows();
  lowering.EmitKernel(node,
                      [=, program = &lowering.program()](const Enqueue& how) {
                        PositionEmbeddingForward(program->At(x), weight, program->At(y), rows,
                                                 positions, channels, how.stream);
                      },
                      {x.buffer, y.buffer});
  return absl::OkStatus();
}

absl::Status LowerPositionEmbeddingGradient(Lowering& lowering, const Node& node) {
  const Place dy = lowering.PlaceOf(node.inputs[0]);
  const ValueId gradient = node.outputs[0];
  const Shape& table = lowering.value(lowering.value(gradient).primal).shape;
  float* const sums = lowering.Sums(gradient);
  const int64_t positions = lowering.PixelsPerRow(node.inputs[0]);
  const int64_t table_positions = table[0];
  const int64_t channels = table[1];
  const int64_t rows = lowering.rows();
  lowering.EmitKernel(node,
                      [=, program = &lowering.program()](const Enqueue& how) {
                        PositionEmbeddingGradient(program->At(dy), sums, how.adds, rows, positions,
                                                  table_positions, channels, how.stream);
                      },
                      {dy.buffer});
  return absl::OkStatus();
}

absl::Status LowerAttention(Lowering& lowering, const Node& node) {
  const ValueId output = node.outputs[0];
  const Place x = lowering.PlaceOf(node.inputs[0]);
  const Place y = lowering.MakeOutput(node);
  const int64_t heads = node.layer<layers::Attention>().heads;
  const AttentionShape shape = {lowering.rows(), lowering.PixelsPerRow(output), heads,
                                lowering.Channels(output) / heads};
  const BufferId logsum = lowering.PlainBuffer(
      node.outputs[1], lowering.rows() * heads * shape.positions * SizeOf(Type::kF32));
  const absl::StatusOr<dnn::AttentionParts> parts = FindForwardParts(lowering, node);
  if (absl::IsNotFound(parts.status())) {
    lowering.FallBack(node, parts.status());
    lowering.EmitKernel(node,
                        [=, program = &lowering.program()](const Enqueue& how) {
                          AttentionForward(shape, program->At(x), program->At(y),
                                           program->ptr<float>(logsum), how.stream);
                        },
                        {x.buffer, y.buffer, logsum});
    return absl::OkStatus();
  }
  TY_RETURN_IF_ERROR(parts.status());
  lowering.attention_outputs[node.outputs[1]] = output;
  const BufferId workspace = lowering.AddScratch(parts->workspace_bytes());
  lowering.Emit(node,
                [=, parts = *parts, program = &lowering.program()](const Enqueue& how) {
                  return parts.Run({.x = program->At(x).data,
                                    .y = program->At(y).data,
                                    .logsum = program->ptr<float>(logsum)},
                                   program->ptr<void>(workspace), how.stream);
                },
                {x.buffer, y.buffer, logsum, workspace},
                {.kernels = static_cast<int64_t>(parts->count())});
  return absl::OkStatus();
}

absl::Status LowerAttentionGradient(Lowering& lowering, const Node& node) {
  const Place dy = lowering.PlaceOf(node.inputs[0]);
  const Place x = lowering.PlaceOf(node.inputs[1]);
  const BufferId logsum = lowering.PlainBufferOf(node.inputs[2]);
  const ValueId x_id = node.inputs[1];
  const Place dx = lowering.MakePlace(node.outputs[0], lowering.target().type);
  const int64_t heads = node.layer<layers::Attention>().heads;
  const AttentionShape shape = {lowering.rows(), lowering.PixelsPerRow(x_id), heads,
                                lowering.Channels(x_id) / (3 * heads)};
  const auto output = lowering.attention_outputs.find(node.inputs[2]);
  if (output == lowering.attention_outputs.end()) {
    const BufferId workspace = lowering.AddScratch(AttentionGradientWorkspace(shape));
    lowering.EmitKernel(node,
                        [=, program = &lowering.program()](const Enqueue& how) {
                          AttentionGradient(shape, program->At(dy), program->At(x),
                                            program->ptr<float>(logsum), program->At(dx),
                                            program->ptr<void>(workspace), how.stream);
                        },
                        {dy.buffer, x.buffer, logsum, dx.buffer, workspace}, {.kernels = 2});
    return absl::OkStatus();
  }
  // cuDNN's gradient reads the output, which the graph does not keep for it.
  TY_ASSIGN_OR_RETURN(const dnn::AttentionParts parts,
                      FindParts(lowering, node, /*is_gradient=*/true));
  const Place y = lowering.PlaceOf(output->second);
  const BufferId workspace = lowering.AddScratch(parts.workspace_bytes());
  lowering.Emit(
      node,
      [=, program = &lowering.program()](const Enqueue& how) {
        return parts.Run({.x = program->At(x).data,
                          .y = program->At(y).data,
                          .logsum = program->ptr<float>(logsum),
                          .dy = program->At(dy).data,
                          .dx = program->At(dx).data},
                         program->ptr<void>(workspace), how.stream);
      },
      {dy.buffer, x.buffer, y.buffer, logsum, dx.buffer, workspace},
      {.kernels = static_cast<int64_t>(parts.count()), .bytes = lowering.Bytes(output->second)});
  return absl::OkStatus();
}

}  // namespace trainyard::engine::cuda
