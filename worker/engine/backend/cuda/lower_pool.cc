// Lowers pooling and upsampling of NHWC images.
#include "worker/engine/backend/cuda/kernels/pool.h"
#include "worker/engine/backend/cuda/lower_ops.h"

namespace trainyard::engine::cuda {
namespace {

PoolWindow WindowOf(const Node& node) {
  const PoolAttributes& pool = node.pool();
  return {pool.kernel, pool.stride, pool.padding, pool.count_padding};
}

}  // namespace

absl::Status LowerAvgPool(Lowering& lowering, const Node& node) {
  const PoolWindow window = WindowOf(node);
  const ImageShape in = lowering.Image(node.inputs[0]);
  const ImageShape out = lowering.Image(node.outputs[0]);
  lowering.EmitMap<1>(node, [=](const MapViews<1>& at) {
    AvgPoolForward(window, at.in[0], at.out, in, out, at.clears_padding, at.stream);
  });
  return absl::OkStatus();
}

absl::Status LowerMaxPool(Lowering& lowering, const Node& node) {
  const ValueId output = node.outputs[0];
  const Place x = lowering.PlaceOf(node.inputs[0]);
  const Place y = lowering.MakeOutput(node);
  const PoolWindow window = WindowOf(node);
  const ImageShape in = lowering.Image(node.inputs[0]);
  const ImageShape out = lowering.Image(output);
  const bool clears = lowering.ClearsPadding(y, output);
  BufferId index = kNoBuffer;
  const int64_t index_stride = PaddedChannels(out.channels, lowering.target().type);
  if (node.outputs[1] != kNoValue) {
    index = lowering.PlainBuffer(node.outputs[1], out.pixels() * index_stride);
  }
  const bool relu = node.relu;
  lowering.EmitKernel(node,
                      [=, program = &lowering.program()](const Enqueue& how) {
                        MaxPoolForward(window, program->At(x), program->At(y),
                                       program->ptr_or_null<uint8_t>(index), index_stride, relu, in,
                                       out, clears, how.stream);
                      },
                      {x.buffer, y.buffer, index});
  return absl::OkStatus();
}

absl::Status LowerAvgPoolGradient(Lowering& lowering, const Node& node) {
  const PoolWindow window = WindowOf(node);
  const ImageShape in = lowering.Image(node.outputs[0]);
  const ImageShape out = lowering.Image(node.inputs[0]);
  lowering.EmitMap<1>(node, [=](const MapViews<1>& at) {
    AvgPoolGradient(window, at.in[0], at.out, in, out, at.clears_padding, at.stream);
  });
  return absl::OkStatus();
}

absl::Status LowerMaxPoolGradient(Lowering& lowering, const Node& node) {
  const ValueId output = node.outputs[0];
  const Place dy = lowering.PlaceOf(node.inputs[0]);
  const Place dx = lowering.MakeOutput(node);
  const PoolWindow window = WindowOf(node);
  const ImageShape in = lowering.Image(output);
  const ImageShape out = lowering.Image(node.inputs[0]);
  const bool clears = lowering.ClearsPadding(dx, output);
  const BufferId index = lowering.PlainBufferOf(node.inputs[1]);
  const int64_t index_stride = PaddedChannels(out.channels, lowering.target().type);
  lowering.EmitKernel(node,
                      [=, program = &lowering.program()](const Enqueue& how) {
                        MaxPoolGradient(window, program->At(dy), program->ptr<uint8_t>(index),
                                        index_stride, program->At(dx), in, out, clears, how.stream);
                      },
                      {dy.buffer, index, dx.buffer});
  return absl::OkStatus();
}

absl::Status LowerGlobalAvgPool(Lowering& lowering, const Node& node) {
  lowering.EmitMap<1>(node, [in = lowering.Image(node.inputs[0])](const MapViews<1>& at) {
    GlobalAvgPoolForward(at.in[0], at.out, in, at.clears_padding, at.stream);
  });
  return absl::OkStatus();
}

absl::Status LowerGlobalAvgPoolGradient(Lowering& lowering, const Node& node) {
  lowering.EmitMap<1>(node, [in = lowering.Image(node.outputs[0])](const MapViews<1>& at) {
    GlobalAvgPoolGradient(at.in[0], at.out, in, at.clears_padding, at.stream);
  });
  return absl::OkStatus();
}

absl::Status LowerUpsample(Lowering& lowering, const Node& node) {
  const ImageShape in = lowering.Image(node.inputs[0]);
  const int64_t scale = node.layer<layers::Upsample>().scale;
  lowering.EmitMap<1>(node, [=](const MapViews<1>& at) {
    UpsampleForward(at.in[0], at.out, in, scale, at.clears_padding, at.stream);
  });
  return absl::OkStatus();
}

absl::Status LowerUpsampleGradient(Lowering& lowering, const Node& node) {
  const ImageShape in = lowering.Image(node.outputs[0]);
  const int64_t scale = node.layer<layers::Upsample>().scale;
  lowering.EmitMap<1>(node, [=](const MapViews<1>& at) {
    UpsampleGradient(at.in[0], at.out, in, scale, at.clears_padding, at.stream);
  });
  return absl::OkStatus();
}

}  // namespace trainyard::engine::cuda
