// layer_norm, embeddings and attention. Attention is cuDNN's where its gradients are known to be
// right and it has a plan for both directions; else our own.
#include "common/base/status_macros.h"
#include "worker/engine/backend/cuda/compiler.h"
#include "worker/engine/backend/cuda/dnn/problems.h"
#include "worker/engine/backend/cuda/kernels/sequence.h"

namespace trainyard::engine::cuda {

void Compiler::LowerLayerNorm(const Node& node) {
  const ValueId output = node.outputs[0];
  const Place x = PlaceOf(node.inputs[0]);
  const Place y = MakeOutput(node);
  const int64_t count = Pixels(output);
  const int64_t channels = Channels(output);
  const BufferId mean = PlainBuffer(node.outputs[1], count * SizeOf(Type::kF32));
  const BufferId inverse = PlainBuffer(node.outputs[2], count * SizeOf(Type::kF32));
  const float* const weight = Parameter(node.inputs[1]);
  const float* const bias = Parameter(node.inputs[2]);
  const auto eps = static_cast<float>(node.layer<layers::LayerNorm>().eps);
  EmitKernel(node,
             [=, program = &program_](const Enqueue& how) {
               LayerNormForward(program->At(x), weight, bias, eps, program->At(y),
                                program->ptr<float>(mean), program->ptr<float>(inverse), count,
                                channels, how.stream);
             },
             {x.buffer, y.buffer, mean, inverse});
}

void Compiler::LowerLayerNormGradient(const Node& node) {
  const ValueId x_id = node.inputs[1];
  const Place dy = PlaceOf(node.inputs[0]);
  const Place x = PlaceOf(x_id);
  const float* const weight = Parameter(node.inputs[2]);
  const BufferId mean = PlainBufferOf(node.inputs[3]);
  const BufferId inverse = PlainBufferOf(node.inputs[4]);
  const Place dx = node.outputs[0] == kNoValue ? Place{} : MakeOutput(node);
  float* const dweight = Sums(node.outputs[1]);
  float* const dbias = Sums(node.outputs[2]);
  const int64_t count = Pixels(x_id);
  const int64_t channels = Channels(x_id);
  const BufferId workspace = AddScratch(LayerNormWorkspace(count, channels));
  EmitKernel(node,
             [=, program = &program_](const Enqueue& how) {
               LayerNormGradient(program->At(dy), program->At(x), weight, program->ptr<float>(mean),
                                 program->ptr<float>(inverse), program->At(dx), dweight, dbias,
                                 how.adds, count, channels, program->ptr<void>(workspace),
                                 how.stream);
             },
             {dy.buffer, x.buffer, mean, inverse, dx.buffer, workspace});
}

void Compiler::LowerEmbedding(const Node& node) {
  const ValueId output = node.outputs[0];
  const BufferId tokens = PlainBufferOf(node.inputs[0]);
  const float* const weight = Parameter(node.inputs[1]);
  const Place y = MakeOutput(node);
  const int64_t count = Pixels(output);
  const int64_t channels = Channels(output);
  EmitKernel(node,
             [=, program = &program_](const Enqueue& how) {
               EmbeddingForward(program->ptr<int32_t>(tokens), weight, program->At(y), count,
                                channels, how.stream);
             },
             {tokens, y.buffer});
}

void Compiler::LowerEmbeddingGradient(const Node& node) {
  const Place dy = PlaceOf(node.inputs[0]);
  const BufferId tokens = PlainBufferOf(node.inputs[1]);
  const ValueId gradient = node.outputs[0];
  const Shape& table = value(value(gradient).primal).shape;
  float* const sums = Sums(gradient);
  const int64_t count = Pixels(node.inputs[0]);
  const int64_t vocabulary = table[0];
  const int64_t channels = table[1];
  const bool adds = node.adds;
  const BufferId workspace = AddScratch(EmbeddingGradientWorkspace(count, vocabulary));
  EmitKernel(node,
             [=, program = &program_](const Enqueue& how) {
               EmbeddingGradient(program->ptr<int32_t>(tokens), program->At(dy), sums,
                                 how.adds || adds, count, vocabulary, channels,
                                 program->ptr<void>(workspace), how.stream);
             },
             {dy.buffer, tokens, workspace});
}

void Compiler::LowerPositionEmbedding(const Node& node) {
  const ValueId output = node.outputs[0];
  const Place x = PlaceOf(node.inputs[0]);
  const float* const weight = Parameter(node.inputs[1]);
  const Place y = MakeOutput(node);
  const int64_t positions = PixelsPerRow(output);
  const int64_t channels = Channels(output);
  const int64_t rows = rows_;
  EmitKernel(node,
             [=, program = &program_](const Enqueue& how) {
               PositionEmbeddingForward(program->At(x), weight, program->At(y), rows, positions,
                                        channels, how.stream);
             },
             {x.buffer, y.buffer});
}

void Compiler::LowerPositionEmbeddingGradient(const Node& node) {
  const Place dy = PlaceOf(node.inputs[0]);
  const ValueId gradient = node.outputs[0];
  const Shape& table = value(value(gradient).primal).shape;
  float* const sums = Sums(gradient);
  const int64_t positions = PixelsPerRow(node.inputs[0]);
  const int64_t table_positions = table[0];
  const int64_t channels = table[1];
  const int64_t rows = rows_;
  const bool adds = node.adds;
  EmitKernel(node,
             [=, program = &program_](const Enqueue& how) {
               PositionEmbeddingGradient(program->At(dy), sums, how.adds || adds, rows, positions,
                                         table_positions, channels, how.stream);
             },
             {dy.buffer});
}

absl::StatusOr<const dnn::Plan*> Compiler::FindAttentionPlan(const Node& node,
                                                             bool is_gradient) const {
  dnn::AttentionProblem problem = dnn::AttentionProblemOf(step_, node, rows_, target_.type);
  problem.is_gradient = is_gradient;
  if (!problem.is_safe()) return nullptr;
  const absl::StatusOr<const dnn::Plan*> plan = target_.planner->Find(problem);
  if (absl::IsNotFound(plan.status())) return nullptr;
  return plan;
}

bool Compiler::IsOverwritten(ValueId id) const {
  for (const Node& node : step_.graph.nodes) {
    for (const Node::Overwrite& overwrite : node.overwrites) {
      if (node.inputs[static_cast<size_t>(overwrite.input)] == id) return true;
    }
  }
  return false;
}

absl::Status Compiler::LowerAttention(const Node& node) {
  const ValueId output = node.outputs[0];
  const Place x = PlaceOf(node.inputs[0]);
  const Place y = MakeOutput(node);
  const int64_t heads = node.layer<layers::Attention>().heads;
  const AttentionShape shape = {rows_, PixelsPerRow(output), heads, Channels(output) / heads};
  const BufferId logsum =
      PlainBuffer(node.outputs[1], rows_ * heads * shape.positions * SizeOf(Type::kF32));
  TY_ASSIGN_OR_RETURN(const dnn::Plan* const plan, FindAttentionPlan(node, false));
  // Both directions by the same: one without the other would round differently.
  TY_ASSIGN_OR_RETURN(const dnn::Plan* const gradient, FindAttentionPlan(node, true));
  if (plan == nullptr || gradient == nullptr || IsOverwritten(output)) {
    EmitKernel(node,
               [=, program = &program_](const Enqueue& how) {
                 AttentionForward(shape, program->At(x), program->At(y),
                                  program->ptr<float>(logsum), how.stream);
               },
               {x.buffer, y.buffer, logsum});
    return absl::OkStatus();
  }
  attention_outputs_[node.outputs[1]] = output;
  const BufferId workspace = AddScratch(plan->facts().workspace_bytes);
  Emit(node,
       [=, program = &program_](const Enqueue& how) {
         return plan->Run(dnn::AttentionMemory{.x = program->At(x).data,
                                               .y = program->At(y).data,
                                               .logsum = program->ptr<float>(logsum)},
                          program->ptr<void>(workspace), how.stream);
       },
       {x.buffer, y.buffer, logsum, workspace});
  return absl::OkStatus();
}

absl::Status Compiler::LowerAttentionGradient(const Node& node) {
  const Place dy = PlaceOf(node.inputs[0]);
  const Place x = PlaceOf(node.inputs[1]);
  const BufferId logsum = PlainBufferOf(node.inputs[2]);
  const ValueId x_id = node.inputs[1];
  const Place dx = MakePlace(node.outputs[0], target_.type);
  const int64_t heads = node.layer<layers::Attention>().heads;
  const AttentionShape shape = {rows_, PixelsPerRow(x_id), heads, Channels(x_id) / (3 * heads)};
  const auto output = attention_outputs_.find(node.inputs[2]);
  if (output == attention_outputs_.end()) {
    const BufferId workspace = AddScratch(AttentionGradientWorkspace(shape));
    EmitKernel(node,
               [=, program = &program_](const Enqueue& how) {
                 AttentionGradient(shape, program->At(dy), program->At(x),
                                   program->ptr<float>(logsum), program->At(dx),
                                   program->ptr<void>(workspace), how.stream);
               },
               {dy.buffer, x.buffer, logsum, dx.buffer, workspace});
    return absl::OkStatus();
  }
  // cuDNN's gradient reads the output, which the graph does not keep for it.
  TY_ASSIGN_OR_RETURN(const dnn::Plan* const plan, FindAttentionPlan(node, true));
  const Place y = PlaceOf(output->second);
  const BufferId workspace = AddScratch(plan->facts().workspace_bytes);
  Emit(node,
       [=, program = &program_](const Enqueue& how) {
         return plan->Run(dnn::AttentionMemory{.x = program->At(x).data,
                                               .y = program->At(y).data,
                                               .logsum = program->ptr<float>(logsum),
                                               .dy = program->At(dy).data,
                                               .dx = program->At(dx).data},
                          program->ptr<void>(workspace), how.stream);
       },
       {dy.buffer, x.buffer, y.buffer, logsum, dx.buffer, workspace});
  return absl::OkStatus();
}

}  // namespace trainyard::engine::cuda
