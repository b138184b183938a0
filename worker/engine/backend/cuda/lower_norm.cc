// Lowers batch_norm with what the passes have fused into it. The groups of rows (Batch::groups) are
// a dimension of each launch, and a recording finds their begins in the memory of the device.
#include "common/base/status_macros.h"
#include "worker/engine/backend/cuda/lower_ops.h"

namespace trainyard::engine::cuda {
namespace {

// Returns an input that a pass has fused into the node, or nothing for place 0.
ValueId FusedInput(const Node& node, int place) {
  return place > 0 ? node.inputs[static_cast<size_t>(place)] : kNoValue;
}

NormGroups GroupsOf(const Enqueue& how, int64_t rows, int64_t pixels) {
  return {.count = how.groups, .begins = how.group_begins, .plane = pixels / rows};
}

// The places of the operands of batch_norm, and what is known of it before it runs.
struct NormPlaces {
  Place x, y, residual;
  BufferId mask = kNoBuffer;
  NormForward norm;
};

NormPlaces PlaceNorm(Lowering& lowering, const Node& node) {
  NormPlaces places;
  places.x = lowering.PlaceOf(node.inputs[0]);
  const ValueId residual = FusedInput(node, node.norm().residual);
  if (residual != kNoValue) places.residual = lowering.PlaceOf(residual);
  places.y = lowering.MakeOutput(node);
  const ValueId output = node.outputs[0];
  places.norm.relu = node.relu;
  places.norm.weight = lowering.Parameter(node.inputs[1]);
  places.norm.bias = lowering.Parameter(node.inputs[2]);
  places.norm.eps = static_cast<float>(node.norm().eps);
  places.norm.pixels = lowering.Pixels(output);
  places.norm.channels = lowering.Channels(output);
  places.norm.clears_padding = lowering.ClearsPadding(places.y, output);
  if (node.outputs.size() > 3 && node.outputs[3] != kNoValue) {
    places.mask = lowering.PlainBuffer(
        node.outputs[3],
        lowering.Pixels(output) * MaskWords(lowering.Channels(output)) * SizeOf(Type::kF32));
  }
  return places;
}

NormForward Resolve(const Program& program, const NormPlaces& places) {
  NormForward norm = places.norm;
  norm.x = program.At(places.x);
  norm.y = program.At(places.y);
  norm.residual = program.At(places.residual);
  norm.mask = program.ptr_or_null<uint32_t>(places.mask);
  return norm;
}

// Returns the number of the node in its graph, counted from 1.
uint32_t LayerNumber(const Lowering& lowering, const Node& node) {
  return static_cast<uint32_t>(&node - lowering.step().graph.nodes.data()) + 1;
}

// Adds memory for a statistic of each group of rows, one group after the other.
BufferId GroupStatistic(Lowering& lowering, ValueId id, int64_t channels) {
  return lowering.PlainBuffer(id, lowering.step().max_groups * channels * SizeOf(Type::kF32));
}

// Lowers a batch_norm that uses the running statistics.
void LowerNormApply(Lowering& lowering, const Node& node) {
  const NormPlaces places = PlaceNorm(lowering, node);
  const BufferId mean = lowering.StatisticBuffer(node.inputs[3]);
  const BufferId variance = lowering.StatisticBuffer(node.inputs[4]);
  lowering.EmitKernel(
      node,
      [=, program = &lowering.program(), rows = lowering.rows()](const Enqueue& how) {
        NormForward norm = Resolve(*program, places);
        norm.groups = GroupsOf(how, rows, norm.pixels);
        NormApply(norm, program->ptr<float>(mean), program->ptr<float>(variance), how.stream);
      },
      {places.x.buffer, places.y.buffer, places.residual.buffer, places.mask, mean, variance});
}

// Lowers a batch_norm whose statistics a convolution has summed up.
void LowerNormOfSums(Lowering& lowering, const Node& node, const NormPlaces& places,
                     BufferId computed) {
  const int64_t channels = places.norm.channels;
  const int64_t pixels = places.norm.pixels;
  const BufferId mean = lowering.PlainBuffer(node.outputs[1], channels * SizeOf(Type::kF32));
  const BufferId variance = lowering.PlainBuffer(node.outputs[2], channels * SizeOf(Type::kF32));
  const StatisticSums sums = lowering.SumsOfStatistics(node);
  const int64_t square_sums = PaddedChannels(channels, lowering.target().type);
  lowering.EmitKernel(node,
                      [=, program = &lowering.program()](const Enqueue& how) {
                        StatisticSums into = sums;
                        into.adds = how.adds;
                        into.control = how.control;
                        const auto* sum = program->ptr<float>(computed);
                        NormFinalize(sum, sum + square_sums, pixels, channels,
                                     program->ptr<float>(mean), program->ptr<float>(variance), into,
                                     how.stream);
                        NormApply(Resolve(*program, places), program->ptr<float>(mean),
                                  program->ptr<float>(variance), how.stream);
                      },
                      {places.x.buffer, places.y.buffer, places.residual.buffer, places.mask, mean,
                       variance, computed},
                      {.kernels = 2});
}

// The places of the operands of a gradient of batch_norm, and what is known of it before it runs.
struct NormGradientPlaces {
  Place dy, x, second, addend, mask, dx, residual;
  BufferId mean = kNoBuffer;
  BufferId variance = kNoBuffer;
  NormGradient gradient;
};

NormGradientPlaces PlaceNormGradient(Lowering& lowering, const Node& node) {
  const NormAttributes& norm = node.norm();
  const ValueId x_id = node.inputs[1];
  const auto fused = [&](int place) {
    const ValueId id = FusedInput(node, place);
    return id == kNoValue ? Place{} : lowering.PlaceOf(id);
  };
  NormGradientPlaces places;
  places.dy = lowering.PlaceOf(node.inputs[0]);
  places.x = lowering.PlaceOf(x_id);
  places.second = fused(norm.second_gradient);
  places.addend = fused(norm.addend);
  places.mask = fused(norm.mask);
  places.mean = lowering.PlainBufferOf(node.inputs[3]);
  places.variance = lowering.PlainBufferOf(node.inputs[4]);
  const bool has_residual = node.outputs.size() > 3 && node.outputs[3] != kNoValue;
  if (has_residual) places.residual = lowering.MakeOutput(node, 3);
  if (node.outputs[0] != kNoValue) places.dx = lowering.MakeOutput(node);
  NormGradient& gradient = places.gradient;
  gradient.relu = norm.bias > 0;
  gradient.bias = norm.bias > 0 ? lowering.Parameter(FusedInput(node, norm.bias)) : nullptr;
  gradient.weight = lowering.Parameter(node.inputs[2]);
  gradient.eps = static_cast<float>(norm.eps);
  gradient.dweight = lowering.Sums(node.outputs[1]);
  gradient.dbias = lowering.Sums(node.outputs[2]);
  gradient.pixels = lowering.Pixels(x_id);
  gradient.channels = lowering.Channels(x_id);
  const Place& written = node.outputs[0] != kNoValue ? places.dx : places.residual;
  gradient.clears_padding = written.buffer != kNoBuffer && lowering.ClearsPadding(written, x_id);
  return places;
}

NormGradient Resolve(const Program& program, const NormGradientPlaces& places) {
  NormGradient gradient = places.gradient;
  gradient.dy = program.At(places.dy);
  gradient.x = program.At(places.x);
  gradient.second_gradient = program.At(places.second);
  gradient.addend = program.At(places.addend);
  gradient.mask = program.ptr_or_null<uint32_t>(places.mask.buffer);
  gradient.mean = program.ptr<float>(places.mean);
  gradient.variance = program.ptr<float>(places.variance);
  gradient.dx = program.At(places.dx);
  gradient.residual_gradient = program.At(places.residual);
  return gradient;
}

// The second kernel reads x again, and the gradient as the first one has read or left it.
Traffic GradientTraffic(Lowering& lowering, const Node& node) {
  const bool has_dx = node.outputs[0] != kNoValue;
  const int64_t kernels = has_dx ? NormKernels(lowering.Pixels(node.inputs[1])) : 1;
  if (kernels == 1) return {};
  const NormAttributes& norm = node.norm();
  const bool has_residual = node.outputs.size() > 3 && node.outputs[3] != kNoValue;
  const double gradient = has_residual
                              ? lowering.Bytes(node.outputs[3])
                              : lowering.Bytes(node.inputs[0]) +
                                    lowering.Bytes(FusedInput(node, norm.second_gradient)) +
                                    lowering.Bytes(FusedInput(node, norm.mask));
  return {.kernels = kernels, .more_bytes = lowering.Bytes(node.inputs[1]) + gradient};
}

// Computes batch_norm by the statistics of the rows of all ranks. A rank without rows only brings
// nothing to them. `merged` says where those go.
absl::Status TrainOverRanks(const Enqueue& how, int64_t rows, const NormForward& norm,
                            MergedMoments merged, void* workspace, uint32_t* tickets) {
  merged.plane = norm.pixels / rows;
  if (!how.has_rows) {
    merged.mean = merged.variance = nullptr;
    return how.ranks->Merge(0, norm.channels, merged, how.stream);
  }
  NormStatistics(norm, merged.mean, merged.variance, workspace, tickets, how.stream);
  TY_RETURN_IF_ERROR(how.ranks->Merge(rows, norm.channels, merged, how.stream));
  NormApply(norm, merged.mean, merged.variance, how.stream);
  return absl::OkStatus();
}

absl::Status BackwardOverRanks(const Enqueue& how, int64_t rows, const NormGradient& norm,
                               float* workspace, uint32_t* tickets) {
  if (!how.has_rows) return how.ranks->Sum(norm.channels, nullptr, nullptr, how.stream);
  NormBackwardSums(norm, workspace, tickets, how.stream);
  TY_RETURN_IF_ERROR(how.ranks->Sum(norm.channels, workspace,
                                    workspace + NormSumsStride(norm.channels), how.stream));
  if (norm.dx) {
    NormBackwardInput(norm, workspace, {how.ranks->rows(), norm.pixels / rows}, how.stream);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status LowerBatchNorm(Lowering& lowering, const Node& node) {
  if (!node.norm().batch_statistics) {
    LowerNormApply(lowering, node);
    return absl::OkStatus();
  }
  const NormPlaces places = PlaceNorm(lowering, node);
  const int64_t channels = places.norm.channels;
  const auto summed = lowering.convolution_sums.find(node.inputs[0]);
  if (summed != lowering.convolution_sums.end()) {
    LowerNormOfSums(lowering, node, places, summed->second);
    return absl::OkStatus();
  }
  const BufferId mean = GroupStatistic(lowering, node.outputs[1], channels);
  const BufferId variance = GroupStatistic(lowering, node.outputs[2], channels);
  const StatisticSums sums = lowering.SumsOfStatistics(node);
  const BufferId workspace =
      lowering.AddScratch(NormWorkspace(places.norm.pixels, channels, lowering.step().max_groups));
  const uint32_t layer = LayerNumber(lowering, node);
  const auto train = [=, program = &lowering.program(),
                      rows = lowering.rows()](const Enqueue& how) -> absl::Status {
    NormForward norm = Resolve(*program, places);
    auto* const means = program->ptr<float>(mean);
    auto* const variances = program->ptr<float>(variance);
    void* const scratch = program->ptr<void>(workspace);
    StatisticSums into = sums;
    into.adds = how.adds;
    into.control = how.control;
    if (how.ranks != nullptr) {
      return TrainOverRanks(how, rows, norm,
                            {.mean = means, .variance = variances, .sums = into, .layer = layer},
                            scratch, how.tickets);
    }
    norm.groups = GroupsOf(how, rows, norm.pixels);
    NormTraining(norm, means, variances, into, scratch, how.tickets, how.stream);
    return absl::OkStatus();
  };
  const int64_t kernels = NormKernels(places.norm.pixels);
  lowering.Emit(
      node, train,
      {places.x.buffer, places.y.buffer, places.residual.buffer, places.mask, mean, variance,
       workspace},
      {.kernels = kernels, .more_bytes = kernels > 1 ? lowering.Bytes(node.inputs[0]) : 0});
  lowering.program().SetOfAllRanks();
  return absl::OkStatus();
}

absl::Status LowerBatchNormGradient(Lowering& lowering, const Node& node) {
  const NormGradientPlaces places = PlaceNormGradient(lowering, node);
  const BufferId workspace = lowering.AddScratch(
      NormWorkspace(places.gradient.pixels, places.gradient.channels, lowering.step().max_groups));
  const auto train = [=, program = &lowering.program(),
                      rows = lowering.rows()](const Enqueue& how) -> absl::Status {
    NormGradient gradient = Resolve(*program, places);
    gradient.adds = how.adds;
    auto* const scratch = program->ptr<float>(workspace);
    if (how.ranks != nullptr) {
      return BackwardOverRanks(how, rows, gradient, scratch, how.tickets);
    }
    gradient.groups = GroupsOf(how, rows, gradient.pixels);
    NormBackward(gradient, scratch, how.tickets, how.stream);
    return absl::OkStatus();
  };
  lowering.Emit(node, train,
                {places.dy.buffer, places.x.buffer, places.second.buffer, places.addend.buffer,
                 places.mask.buffer, places.mean, places.variance, places.dx.buffer,
                 places.residual.buffer, workspace},
                GradientTraffic(lowering, node));
  lowering.program().SetOfAllRanks();
  return absl::OkStatus();
}

}  // namespace trainyard::engine::cuda
