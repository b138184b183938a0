// batch_norm with what the passes fused into it.
#include "worker/engine/backend/cuda/compiler.h"

namespace trainyard::engine::cuda {
namespace {

// Of what a pass fused into the node; none for place 0.
ValueId FusedInput(const Node& node, int place) {
  return place > 0 ? node.inputs[static_cast<size_t>(place)] : kNoValue;
}

}  // namespace

Compiler::NormPlaces Compiler::PlaceNorm(const Node& node) {
  NormPlaces places;
  places.x = PlaceOf(node.inputs[0]);
  const ValueId residual = FusedInput(node, node.norm().residual);
  if (residual != kNoValue) places.residual = PlaceOf(residual);
  places.y = MakeOutput(node);
  const ValueId output = node.outputs[0];
  places.norm.relu = node.relu;
  places.norm.weight = Parameter(node.inputs[1]);
  places.norm.bias = Parameter(node.inputs[2]);
  places.norm.eps = static_cast<float>(node.norm().eps);
  places.norm.pixels = Pixels(output);
  places.norm.channels = Channels(output);
  places.norm.clears_padding = ClearsPadding(places.y, output);
  if (node.outputs.size() > 3 && node.outputs[3] != kNoValue) {
    places.mask = PlainBuffer(node.outputs[3],
                              Pixels(output) * MaskWords(Channels(output)) * SizeOf(Type::kF32));
  }
  return places;
}

NormForward Compiler::Resolve(const Program& program, const NormPlaces& places) {
  NormForward norm = places.norm;
  norm.x = program.At(places.x);
  norm.y = program.At(places.y);
  norm.residual = program.At(places.residual);
  norm.mask = program.ptr_or_null<uint32_t>(places.mask);
  return norm;
}

void Compiler::LowerNorm(const Node& node) {
  const NormPlaces places = PlaceNorm(node);
  const int64_t channels = places.norm.channels;
  const int64_t pixels = places.norm.pixels;
  const BufferId mean = PlainBuffer(node.outputs[1], channels * SizeOf(Type::kF32));
  const BufferId variance = PlainBuffer(node.outputs[2], channels * SizeOf(Type::kF32));
  const StatisticSums sums = SumsOfStatistics(node);
  const auto summed = statistics_.find(node.inputs[0]);
  if (summed != statistics_.end()) {
    const BufferId computed = summed->second;
    const int64_t square_sums = PaddedChannels(channels, target_.type);
    EmitKernel(node,
               [=, program = &program_](const Enqueue& how) {
                 StatisticSums into = sums;
                 into.adds = how.adds;
                 const auto* sum = program->ptr<float>(computed);
                 NormFinalize(sum, sum + square_sums, pixels, channels, program->ptr<float>(mean),
                              program->ptr<float>(variance), into, how.stream);
                 NormApply(Resolve(*program, places), program->ptr<float>(mean),
                           program->ptr<float>(variance), how.stream);
               },
               {places.x.buffer, places.y.buffer, places.residual.buffer, places.mask, mean,
                variance, computed});
    return;
  }
  const BufferId workspace = AddScratch(NormWorkspace(pixels, channels));
  EmitKernel(node,
             [=, program = &program_, state = state_](const Enqueue& how) {
               StatisticSums into = sums;
               into.adds = how.adds;
               NormTraining(Resolve(*program, places), program->ptr<float>(mean),
                            program->ptr<float>(variance), into, program->ptr<void>(workspace),
                            state.tickets, how.stream);
             },
             {places.x.buffer, places.y.buffer, places.residual.buffer, places.mask, mean, variance,
              workspace});
}

void Compiler::LowerNormApply(const Node& node) {
  const NormPlaces places = PlaceNorm(node);
  const BufferId mean = StatisticBuffer(node.inputs[3]);
  const BufferId variance = StatisticBuffer(node.inputs[4]);
  EmitKernel(
      node,
      [=, program = &program_](const Enqueue& how) {
        NormApply(Resolve(*program, places), program->ptr<float>(mean),
                  program->ptr<float>(variance), how.stream);
      },
      {places.x.buffer, places.y.buffer, places.residual.buffer, places.mask, mean, variance});
}

void Compiler::LowerNormGradient(const Node& node) {
  const NormAttributes& norm = node.norm();
  const ValueId x_id = node.inputs[1];
  const Place dy = PlaceOf(node.inputs[0]);
  const Place x = PlaceOf(x_id);
  const auto fused = [&](int place) {
    const ValueId id = FusedInput(node, place);
    return id == kNoValue ? Place{} : PlaceOf(id);
  };
  const Place second = fused(norm.second_gradient);
  const Place addend = fused(norm.addend);
  const Place mask = fused(norm.mask);
  const BufferId mean = PlainBufferOf(node.inputs[3]);
  const BufferId variance = PlainBufferOf(node.inputs[4]);
  Place dx;
  Place residual;
  if (node.outputs.size() > 3 && node.outputs[3] != kNoValue) residual = MakeOutput(node, 3);
  if (node.outputs[0] != kNoValue) dx = MakeOutput(node);
  NormGradient gradient;
  gradient.relu = norm.bias > 0;
  gradient.bias = norm.bias > 0 ? Parameter(FusedInput(node, norm.bias)) : nullptr;
  gradient.weight = Parameter(node.inputs[2]);
  gradient.eps = static_cast<float>(norm.eps);
  gradient.dweight = Sums(node.outputs[1]);
  gradient.dbias = Sums(node.outputs[2]);
  gradient.pixels = Pixels(x_id);
  gradient.channels = Channels(x_id);
  gradient.clears_padding = dx.buffer != kNoBuffer
                                ? ClearsPadding(dx, x_id)
                                : residual.buffer != kNoBuffer && ClearsPadding(residual, x_id);
  const BufferId workspace = AddScratch(NormWorkspace(gradient.pixels, gradient.channels));
  EmitKernel(node,
             [=, program = &program_, state = state_](const Enqueue& how) {
               NormGradient resolved = gradient;
               resolved.dy = program->At(dy);
               resolved.x = program->At(x);
               resolved.second_gradient = program->At(second);
               resolved.addend = program->At(addend);
               resolved.mask = program->ptr_or_null<uint32_t>(mask.buffer);
               resolved.mean = program->ptr<float>(mean);
               resolved.variance = program->ptr<float>(variance);
               resolved.dx = program->At(dx);
               resolved.residual_gradient = program->At(residual);
               resolved.adds = how.adds;
               NormBackward(resolved, program->ptr<void>(workspace), state.tickets, how.stream);
             },
             {dy.buffer, x.buffer, second.buffer, addend.buffer, mask.buffer, mean, variance,
              dx.buffer, residual.buffer, workspace});
}

}  // namespace trainyard::engine::cuda
