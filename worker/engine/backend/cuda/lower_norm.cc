// Lowers batch_norm with what the passes have fused into it. Each group of rows (Batch::groups)
// takes one launch or a few, and a recording keeps the groups as they were. Statistics over all
// ranks go through the host, which must then wait for the stream.
#include <algorithm>
#include <vector>

#include "common/base/status_macros.h"
#include "worker/engine/backend/cuda/lower_ops.h"
#include "worker/engine/backend/cuda/runtime/runtime.h"

namespace trainyard::engine::cuda {
namespace {

// Returns an input that a pass has fused into the node, or nothing for place 0.
ValueId FusedInput(const Node& node, int place) {
  return place > 0 ? node.inputs[static_cast<size_t>(place)] : kNoValue;
}

// The pixels of one group.
struct GroupPixels {
  int64_t group = 0;
  int64_t first = 0;
  int64_t count = 0;
  float share = 1;  // of all pixels
};

// Calls body(pixels) for each group of a value that has this many pixels in all rows.
template <class Body>
void ForEachGroup(const RowGroups& groups, int64_t rows, int64_t pixels, const Body& body) {
  const int64_t per_row = pixels / rows;
  for (int64_t group = 0; group < groups.count(); ++group) {
    const int64_t of_group = groups.rows(group, rows);
    body(
        GroupPixels{group, groups.begin(group) * per_row, of_group * per_row,
                    static_cast<float>(static_cast<double>(of_group) / static_cast<double>(rows))});
  }
}

View PixelsOf(View view, const GroupPixels& pixels) {
  if (view) {
    view.data = static_cast<std::byte*>(view.data) + pixels.first * view.stride * SizeOf(view.type);
  }
  return view;
}

template <class Word>
Word* MaskOf(Word* mask, int64_t channels, const GroupPixels& pixels) {
  return mask == nullptr ? nullptr : mask + pixels.first * MaskWords(channels);
}

NormForward PixelsOf(NormForward norm, const GroupPixels& pixels) {
  norm.x = PixelsOf(norm.x, pixels);
  norm.y = PixelsOf(norm.y, pixels);
  norm.residual = PixelsOf(norm.residual, pixels);
  norm.mask = MaskOf(norm.mask, norm.channels, pixels);
  norm.pixels = pixels.count;
  return norm;
}

NormGradient PixelsOf(NormGradient norm, const GroupPixels& pixels) {
  norm.dy = PixelsOf(norm.dy, pixels);
  norm.x = PixelsOf(norm.x, pixels);
  norm.second_gradient = PixelsOf(norm.second_gradient, pixels);
  norm.addend = PixelsOf(norm.addend, pixels);
  norm.dx = PixelsOf(norm.dx, pixels);
  norm.residual_gradient = PixelsOf(norm.residual_gradient, pixels);
  norm.mask = MaskOf(norm.mask, norm.channels, pixels);
  norm.mean += pixels.group * norm.channels;
  norm.variance += pixels.group * norm.channels;
  norm.adds = norm.adds || pixels.group > 0;
  norm.pixels = pixels.count;
  return norm;
}

// Reads floats of the device as doubles, once all earlier work on the stream is done.
absl::Status ReadDoubles(const float* from, absl::Span<double> values, cudaStream_t stream) {
  std::vector<float> floats(values.size());
  TY_RETURN_IF_ERROR(CudaStatus(cudaStreamSynchronize(stream), "waiting for statistics"));
  TY_RETURN_IF_ERROR(CudaStatus(
      cudaMemcpy(floats.data(), from, floats.size() * sizeof(float), cudaMemcpyDeviceToHost),
      "reading statistics"));
  std::copy(floats.begin(), floats.end(), values.begin());
  return absl::OkStatus();
}

absl::Status WriteDoubles(absl::Span<const double> values, float* to) {
  std::vector<float> floats;
  for (const double value : values) floats.push_back(static_cast<float>(value));
  return CopyToDevice(to, floats.data(), static_cast<int64_t>(floats.size() * sizeof(float)),
                      "writing statistics");
}

// Replaces mean and variance by the statistics of the rows of all ranks.
absl::Status MergeStatistics(const Enqueue& how, int64_t rows, const NormForward& norm, float* mean,
                             float* variance) {
  const absl::Span<double> values = how.ranks->Values(norm.channels);
  const absl::Span<double> means = values.first(static_cast<size_t>(norm.channels));
  const absl::Span<double> variances = values.subspan(means.size());
  TY_RETURN_IF_ERROR(ReadDoubles(mean, means, how.stream));
  TY_RETURN_IF_ERROR(ReadDoubles(variance, variances, how.stream));
  TY_RETURN_IF_ERROR(how.ranks->Merge(rows, norm.pixels / rows));
  TY_RETURN_IF_ERROR(WriteDoubles(means, mean));
  return WriteDoubles(variances, variance);
}

// Replaces what NormBackwardSums has left by the sums over all ranks.
absl::Status SumOverRanks(const Enqueue& how, int64_t channels, float* sums) {
  const int64_t stride = NormSumsStride(channels);
  const absl::Span<double> values = how.ranks->Values(channels);
  const absl::Span<double> first = values.first(static_cast<size_t>(channels));
  const absl::Span<double> second = values.subspan(first.size());
  TY_RETURN_IF_ERROR(ReadDoubles(sums, first, how.stream));
  TY_RETURN_IF_ERROR(ReadDoubles(sums + stride, second, how.stream));
  TY_RETURN_IF_ERROR(how.ranks->Sum());
  TY_RETURN_IF_ERROR(WriteDoubles(first, sums));
  return WriteDoubles(second, sums + stride);
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
        const NormForward norm = Resolve(*program, places);
        ForEachGroup(*how.groups, rows, norm.pixels, [&](const GroupPixels& pixels) {
          const int64_t first = pixels.group * norm.channels;
          NormApply(PixelsOf(norm, pixels), program->ptr<float>(mean) + first,
                    program->ptr<float>(variance) + first, how.stream);
        });
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
  const BufferId workspace = lowering.AddScratch(NormWorkspace(places.norm.pixels, channels));
  const auto train = [=, program = &lowering.program(), rows = lowering.rows(),
                      state = lowering.state()](const Enqueue& how) -> absl::Status {
    const NormForward norm = Resolve(*program, places);
    auto* const means = program->ptr<float>(mean);
    auto* const variances = program->ptr<float>(variance);
    void* const scratch = program->ptr<void>(workspace);
    StatisticSums into = sums;
    into.adds = how.adds;
    if (how.ranks != nullptr) {
      NormStatistics(norm, means, variances, scratch, state.tickets, how.stream);
      TY_RETURN_IF_ERROR(MergeStatistics(how, rows, norm, means, variances));
      const int64_t count = how.ranks->rows() * (norm.pixels / rows);
      NormSumStatistics(means, variances, count, channels, into, how.stream);
      NormApply(norm, means, variances, how.stream);
      return absl::OkStatus();
    }
    ForEachGroup(*how.groups, rows, norm.pixels, [&](const GroupPixels& pixels) {
      into.share = pixels.share;
      NormTraining(PixelsOf(norm, pixels), means + pixels.group * channels,
                   variances + pixels.group * channels, into, scratch, state.tickets, how.stream);
      into.adds = true;
    });
    return absl::OkStatus();
  };
  const int64_t kernels = NormKernels(places.norm.pixels);
  lowering.Emit(
      node, train,
      {places.x.buffer, places.y.buffer, places.residual.buffer, places.mask, mean, variance,
       workspace},
      {.kernels = kernels, .more_bytes = kernels > 1 ? lowering.Bytes(node.inputs[0]) : 0});
  return absl::OkStatus();
}

absl::Status LowerBatchNormGradient(Lowering& lowering, const Node& node) {
  const NormGradientPlaces places = PlaceNormGradient(lowering, node);
  const BufferId workspace =
      lowering.AddScratch(NormWorkspace(places.gradient.pixels, places.gradient.channels));
  const auto train = [=, program = &lowering.program(), rows = lowering.rows(),
                      state = lowering.state()](const Enqueue& how) -> absl::Status {
    NormGradient gradient = Resolve(*program, places);
    gradient.adds = how.adds;
    auto* const scratch = program->ptr<float>(workspace);
    if (how.ranks != nullptr) {
      NormBackwardSums(gradient, scratch, state.tickets, how.stream);
      TY_RETURN_IF_ERROR(SumOverRanks(how, gradient.channels, scratch));
      const int64_t count = how.ranks->rows() * (gradient.pixels / rows);
      if (gradient.dx) NormBackwardInput(gradient, scratch, count, how.stream);
      return absl::OkStatus();
    }
    ForEachGroup(*how.groups, rows, gradient.pixels, [&](const GroupPixels& pixels) {
      NormBackward(PixelsOf(gradient, pixels), scratch, state.tickets, how.stream);
    });
    return absl::OkStatus();
  };
  lowering.Emit(node, train,
                {places.dy.buffer, places.x.buffer, places.second.buffer, places.addend.buffer,
                 places.mask.buffer, places.mean, places.variance, places.dx.buffer,
                 places.residual.buffer, workspace},
                GradientTraffic(lowering, node));
  return absl::OkStatus();
}

}  // namespace trainyard::engine::cuda
