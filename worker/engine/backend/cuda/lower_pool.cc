// Pooling over NHWC images.
#include "worker/engine/backend/cuda/compiler.h"

namespace trainyard::engine::cuda {
namespace {

PoolWindow WindowOf(const Node& node) {
  const PoolAttributes& pool = node.pool();
  return {pool.kernel, pool.stride, pool.padding, pool.count_padding};
}

}  // namespace

void Compiler::LowerPool(const Node& node) {
  const ValueId output = node.outputs[0];
  const Place x = PlaceOf(node.inputs[0]);
  const Place y = MakeOutput(node);
  const PoolWindow window = WindowOf(node);
  const ImageShape in = Image(node.inputs[0]);
  const ImageShape out = Image(output);
  const bool clears = ClearsPadding(y, output);
  if (node.op == OpKind::kAvgPool) {
    EmitKernel(node,
               [=, program = &program_](const Enqueue& how) {
                 AvgPoolForward(window, program->At(x), program->At(y), in, out, clears,
                                how.stream);
               },
               {x.buffer, y.buffer});
    return;
  }
  BufferId index = kNoBuffer;
  const int64_t index_stride = PaddedChannels(out.channels, target_.type);
  if (node.outputs[1] != kNoValue) {
    index = PlainBuffer(node.outputs[1], out.pixels() * index_stride);
  }
  const bool relu = node.relu;
  EmitKernel(node,
             [=, program = &program_](const Enqueue& how) {
               MaxPoolForward(window, program->At(x), program->At(y),
                              program->ptr_or_null<uint8_t>(index), index_stride, relu, in, out,
                              clears, how.stream);
             },
             {x.buffer, y.buffer, index});
}

void Compiler::LowerPoolGradient(const Node& node) {
  const ValueId output = node.outputs[0];
  const Place dy = PlaceOf(node.inputs[0]);
  const Place dx = MakeOutput(node);
  const PoolWindow window = WindowOf(node);
  const ImageShape in = Image(output);
  const ImageShape out = Image(node.inputs[0]);
  const bool clears = ClearsPadding(dx, output);
  if (node.op == OpKind::kAvgPoolGradient) {
    EmitKernel(node,
               [=, program = &program_](const Enqueue& how) {
                 AvgPoolGradient(window, program->At(dy), program->At(dx), in, out, clears,
                                 how.stream);
               },
               {dy.buffer, dx.buffer});
    return;
  }
  const BufferId index = PlainBufferOf(node.inputs[1]);
  const int64_t index_stride = PaddedChannels(out.channels, target_.type);
  EmitKernel(node,
             [=, program = &program_](const Enqueue& how) {
               MaxPoolGradient(window, program->At(dy), program->ptr<uint8_t>(index), index_stride,
                               program->At(dx), in, out, clears, how.stream);
             },
             {dy.buffer, index, dx.buffer});
}

void Compiler::LowerGlobalPool(const Node& node) {
  const ValueId output = node.outputs[0];
  const Place x = PlaceOf(node.inputs[0]);
  const Place y = MakeOutput(node);
  const ImageShape in = Image(node.inputs[0]);
  const bool clears = ClearsPadding(y, output);
  EmitKernel(node,
             [=, program = &program_](const Enqueue& how) {
               GlobalAvgPoolForward(program->At(x), program->At(y), in, clears, how.stream);
             },
             {x.buffer, y.buffer});
}

void Compiler::LowerGlobalPoolGradient(const Node& node) {
  const ValueId output = node.outputs[0];
  const Place dy = PlaceOf(node.inputs[0]);
  const Place dx = MakeOutput(node);
  const ImageShape in = Image(output);
  const bool clears = ClearsPadding(dx, output);
  EmitKernel(node,
             [=, program = &program_](const Enqueue& how) {
               GlobalAvgPoolGradient(program->At(dy), program->At(dx), in, clears, how.stream);
             },
             {dy.buffer, dx.buffer});
}

}  // namespace trainyard::engine::cuda
