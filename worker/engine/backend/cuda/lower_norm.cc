// Lowers batch_norm with what the passes have fused into it. The groups of rows (Batch::groups) are
// a dimension of each launch, and a recording finds their begins in the memory of the device.
#include "common/base/status_macros.h"
#include "worker/engine/backend/cuda/conv_plans.h"
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
  Place x, residual;
  Place y;             // nowhere if the output is not written
  Place scale, shift;  // somewhere if it is not
  BufferId mask = kNoBuffer;
  NormForward norm;
};

NormPlaces PlaceNorm(Lowering& lowering, const Node& node) {
  NormPlaces places;
  places.x = lowering.PlaceOf(node.inputs[0]);
  const ValueId residual = FusedInput(node, node.norm().residual);
  if (residual != kNoValue) places.residual = lowering.PlaceOf(residual);
  const ValueId output = node.outputs[0];
  const auto unwritten = lowering.unwritten_norms.find(output);
  if (unwritten == lowering.unwritten_norms.end()) {
    places.y = lowering.MakeOutput(node);
  } else {
    places.scale = unwritten->second.scale;
    places.shift = unwritten->second.shift;
    lowering.SharePlace(output, Place(places.x));
  }
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
  norm.scale = program.At(places.scale);
  norm.shift = program.At(places.shift);
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

// The bytes of weight, bias, mean and variance, or of as many other numbers of each channel.
double ChannelBytes(const NormPlaces& places) {
  return static_cast<double>(4 * places.norm.channels * SizeOf(Type::kF32));
}

// Gives the output of a batch_norm no memory if all readers can do without, and that saves time.
absl::Status LeaveOutputUnwritten(Lowering& lowering, const Node& node) {
  TY_ASSIGN_OR_RETURN(const bool normalise,
                      ReadersNormalise(lowering, node, lowering.PlaceOf(node.inputs[0])));
  if (!normalise) return absl::OkStatus();
  const Type type = lowering.target().type;
  const int64_t stride = PaddedChannels(lowering.Channels(node.outputs[0]), type);
  const auto add = [&] {
    return Place{lowering.AddScratch(stride * SizeOf(type)), 0, stride, type};
  };
  const Place scale = add();
  lowering.unwritten_norms[node.outputs[0]] = {scale, add()};
  return absl::OkStatus();
}

// Lowers a batch_norm whose statistics a convolution has summed up.
void LowerNormOfSums(Lowering& lowering, const Node& node, const NormPlaces& places,
                     BufferId computed) {
  const int64_t channels = places.norm.channels;
  const BufferId mean = lowering.PlainBuffer(node.outputs[1], channels * SizeOf(Type::kF32));
  const BufferId variance = lowering.PlainBuffer(node.outputs[2], channels * SizeOf(Type::kF32));
  const StatisticSums sums = lowering.SumsOfStatistics(node);
  const int64_t square_sums = PaddedChannels(channels, lowering.target().type);
  const bool is_written = places.y.buffer != kNoBuffer;
  lowering.EmitKernel(
      node,
      [=, program = &lowering.program()](const Enqueue& how) {
        StatisticSums into = sums;
        into.adds = how.adds;
        into.control = how.control;
        const auto* sum = program->ptr<float>(computed);
        auto* const means = program->ptr<float>(mean);
        auto* const variances = program->ptr<float>(variance);
        const NormForward norm = Resolve(*program, places);
        NormFinalize(sum, sum + square_sums, norm, means, variances, into, how.stream);
        if (is_written) NormApply(norm, means, variances, how.stream);
      },
      {places.x.buffer, places.y.buffer, places.scale.buffer, places.shift.buffer,
       places.residual.buffer, places.mask, mean, variance, computed},
      is_written ? Traffic{.kernels = 2}
                 : Traffic{.bytes = 2 * ChannelBytes(places), .has_tensors = false});
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

// Returns what the second kernel of a gradient reads again: x, and the gradient as the first one
// has read or left it.
double GradientBytesReadAgain(Lowering& lowering, const Node& node) {
  const NormAttributes& norm = node.norm();
  const bool has_residual = node.outputs.size() > 3 && node.outputs[3] != kNoValue;
  const double gradient = has_residual
                              ? lowering.Bytes(node.outputs[3])
                              : lowering.Bytes(node.inputs[0]) +
                                    lowering.Bytes(FusedInput(node, norm.second_gradient)) +
                                    lowering.Bytes(FusedInput(node, norm.mask));
  return lowering.Bytes(node.inputs[1]) + gradient;
}

// Lowers a gradient whose sums the gradient of a convolution has taken, which has also rectified
// it.
void LowerGradientOfSums(Lowering& lowering, const Node& node, const NormGradientPlaces& places,
                         BufferId sums) {
  lowering.EmitKernel(node,
                      [=, program = &lowering.program()](const Enqueue& how) {
                        NormGradient gradient = Resolve(*program, places);
                        gradient.adds = how.adds;
                        gradient.relu = false;
                        NormBackwardOfSums(gradient, program->ptr<float>(sums), how.stream);
                      },
                      {places.dy.buffer, places.x.buffer, places.addend.buffer, places.mean,
                       places.variance, places.dx.buffer, sums});
}

Traffic GradientTraffic(Lowering& lowering, const Node& node) {
  const bool has_dx = node.outputs[0] != kNoValue;
  const int64_t kernels = has_dx ? NormKernels(lowering.Pixels(node.inputs[1])) : 1;
  if (kernels == 1) return {};
  return {.kernels = kernels, .more_bytes = GradientBytesReadAgain(lowering, node)};
}

// Emits the call that sums over the ranks what the call before it has packed, for one half of a
// batch_norm.
void EmitSumOfRanks(Lowering& lowering, const Node& node, RankSums::Half half, int64_t channels) {
  lowering.Emit(node,
                [=](const Enqueue& how) -> absl::Status {
                  return how.ranks->Sum(half, channels, how.stream);
                },
                {}, {.has_tensors = false});
  lowering.program().SetOfAllRanks(/*is_sum=*/true);
}

// The memory of the statistics of a batch_norm.
struct NormStatisticsMemory {
  BufferId mean = kNoBuffer;
  BufferId variance = kNoBuffer;
  BufferId workspace = kNoBuffer;
  StatisticSums sums;
};

// Lowers a batch_norm by the statistics of the rows of all ranks. A rank without rows only brings
// nothing to them.
void LowerNormOverRanks(Lowering& lowering, const Node& node, const NormPlaces& places,
                        const NormStatisticsMemory& memory) {
  const int64_t rows = lowering.rows();
  const int64_t channels = places.norm.channels;
  lowering.Emit(node,
                [=, program = &lowering.program()](const Enqueue& how) -> absl::Status {
                  auto* const mean = program->ptr<float>(memory.mean);
                  auto* const variance = program->ptr<float>(memory.variance);
                  if (how.has_rows) {
                    NormStatistics(Resolve(*program, places), mean, variance,
                                   program->ptr<void>(memory.workspace), how.tickets, how.stream);
                  }
                  how.ranks->PackMoments(how.has_rows ? rows : 0, channels, mean, variance,
                                         how.stream);
                  return absl::OkStatus();
                },
                {places.x.buffer, memory.mean, memory.variance, memory.workspace},
                {.kernels = 2, .bytes = lowering.Bytes(node.inputs[0]), .has_tensors = false});
  lowering.program().SetOfAllRanks(/*is_sum=*/false);
  EmitSumOfRanks(lowering, node, RankSums::Half::kForward, channels);
  lowering.Emit(node,
                [=, program = &lowering.program(),
                 layer = LayerNumber(lowering, node)](const Enqueue& how) -> absl::Status {
                  const NormForward norm = Resolve(*program, places);
                  MergedMoments merged = {
                      .plane = norm.pixels / rows, .sums = memory.sums, .layer = layer};
                  merged.sums.adds = how.adds;
                  merged.sums.control = how.control;
                  if (how.has_rows) {
                    merged.mean = program->ptr<float>(memory.mean);
                    merged.variance = program->ptr<float>(memory.variance);
                  }
                  how.ranks->MergeMoments(channels, merged, how.stream);
                  if (how.has_rows) NormApply(norm, merged.mean, merged.variance, how.stream);
                  return absl::OkStatus();
                },
                {places.x.buffer, places.y.buffer, places.residual.buffer, places.mask, memory.mean,
                 memory.variance},
                {.kernels = 2});
  lowering.program().SetOfAllRanks(/*is_sum=*/false);
}

// A rank without rows brings nothing to the sums, and needs none.
void LowerNormGradientOverRanks(Lowering& lowering, const Node& node,
                                const NormGradientPlaces& places, BufferId workspace) {
  const int64_t channels = places.gradient.channels;
  const Buffers buffers = {
      places.dy.buffer,       places.x.buffer, places.second.buffer, places.addend.buffer,
      places.mask.buffer,     places.mean,     places.variance,      places.dx.buffer,
      places.residual.buffer, workspace};
  lowering.Emit(node,
                [=, program = &lowering.program()](const Enqueue& how) -> absl::Status {
                  float* sums = nullptr;
                  if (how.has_rows) {
                    sums = program->ptr<float>(workspace);
                    NormGradient gradient = Resolve(*program, places);
                    gradient.adds = how.adds;
                    NormBackwardSums(gradient, sums, how.tickets, how.stream);
                  }
                  how.ranks->PackSums(channels, sums, how.stream);
                  return absl::OkStatus();
                },
                buffers, {.kernels = 2});
  lowering.program().SetOfAllRanks(/*is_sum=*/false);
  EmitSumOfRanks(lowering, node, RankSums::Half::kBackward, channels);
  const bool has_dx = node.outputs[0] != kNoValue;
  lowering.Emit(
      node,
      [=, program = &lowering.program(),
       rows = lowering.rows()](const Enqueue& how) -> absl::Status {
        auto* const sums = program->ptr<float>(workspace);
        how.ranks->MergeSums(channels, sums, how.stream);
        if (!has_dx) return absl::OkStatus();
        const NormGradient gradient = Resolve(*program, places);
        NormBackwardInput(gradient, sums, {how.ranks->rows(), gradient.pixels / rows}, how.stream);
        return absl::OkStatus();
      },
      buffers,
      {.kernels = has_dx ? 2 : 1,
       .bytes = has_dx ? GradientBytesReadAgain(lowering, node) : 0,
       .has_tensors = false});
}

}  // namespace

absl::Status LowerBatchNorm(Lowering& lowering, const Node& node) {
  if (!node.norm().batch_statistics) {
    LowerNormApply(lowering, node);
    return absl::OkStatus();
  }
  TY_RETURN_IF_ERROR(LeaveOutputUnwritten(lowering, node));
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
  if (lowering.target().merges_ranks) {
    LowerNormOverRanks(lowering, node, places, {mean, variance, workspace, sums});
    return absl::OkStatus();
  }
  const int64_t kernels = NormKernels(places.norm.pixels);
  const Traffic traffic =
      places.y.buffer == kNoBuffer
          ? Traffic{.bytes = lowering.Bytes(node.inputs[0]) + 2 * ChannelBytes(places),
                    .has_tensors = false}
          : Traffic{.kernels = kernels,
                    .more_bytes = kernels > 1 ? lowering.Bytes(node.inputs[0]) : 0};
  lowering.EmitKernel(
      node,
      [=, program = &lowering.program(), rows = lowering.rows()](const Enqueue& how) {
        NormForward norm = Resolve(*program, places);
        norm.groups = GroupsOf(how, rows, norm.pixels);
        StatisticSums into = sums;
        into.adds = how.adds;
        into.control = how.control;
        NormTraining(norm, program->ptr<float>(mean), program->ptr<float>(variance), into,
                     program->ptr<void>(workspace), how.tickets, how.stream);
      },
      {places.x.buffer, places.y.buffer, places.scale.buffer, places.shift.buffer,
       places.residual.buffer, places.mask, mean, variance, workspace},
      traffic);
  return absl::OkStatus();
}

absl::Status LowerBatchNormGradient(Lowering& lowering, const Node& node) {
  const NormGradientPlaces places = PlaceNormGradient(lowering, node);
  const auto summed = lowering.norm_sums.find(node.inputs[0]);
  if (summed != lowering.norm_sums.end()) {
    LowerGradientOfSums(lowering, node, places, summed->second);
    return absl::OkStatus();
  }
  const BufferId workspace = lowering.AddScratch(
      NormWorkspace(places.gradient.pixels, places.gradient.channels, lowering.step().max_groups));
  if (lowering.target().merges_ranks) {
    LowerNormGradientOverRanks(lowering, node, places, workspace);
    return absl::OkStatus();
  }
  lowering.EmitKernel(
      node,
      [=, program = &lowering.program(), rows = lowering.rows()](const Enqueue& how) {
        NormGradient gradient = Resolve(*program, places);
        gradient.adds = how.adds;
        gradient.groups = GroupsOf(how, rows, gradient.pixels);
        NormBackward(gradient, program->ptr<void>(workspace), how.tickets, how.stream);
      },
      {places.dy.buffer, places.x.buffer, places.second.buffer, places.addend.buffer,
       places.mask.buffer, places.mean, places.variance, places.dx.buffer, places.residual.buffer,
       workspace},
      GradientTraffic(lowering, node));
  return absl::OkStatus();
}

}  // namespace trainyard::engine::cuda
