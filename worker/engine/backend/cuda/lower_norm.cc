// batch_norm with what the passes fused into it: a launch, or a few, for each group of rows
// (Batch::groups), which a recording holds as they were. Statistics of all ranks go through the
// host: then the stream is waited for.
#include <algorithm>
#include <vector>

#include "common/base/status_macros.h"
#include "worker/engine/backend/cuda/compiler.h"
#include "worker/engine/backend/cuda/runtime/runtime.h"

namespace trainyard::engine::cuda {
namespace {

// Of what a pass fused into the node; none for place 0.
ValueId FusedInput(const Node& node, int place) {
  return place > 0 ? node.inputs[static_cast<size_t>(place)] : kNoValue;
}

// Of a group of a value's pixels.
struct GroupPixels {
  int64_t group = 0;
  int64_t first = 0;
  int64_t count = 0;
  float share = 1;  // of all
};

// body(pixels) for each group of a value of so many pixels in all rows.
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

// Reads floats of the device as doubles, when all that the stream was told before is done.
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

// Both become those of the rows of all ranks.
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

// What NormBackwardSums left becomes the sums over all ranks.
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
  const auto summed = statistics_.find(node.inputs[0]);
  if (summed != statistics_.end()) return LowerNormOfSums(node, places, summed->second);
  const BufferId mean = GroupStatistic(node.outputs[1], channels);
  const BufferId variance = GroupStatistic(node.outputs[2], channels);
  const StatisticSums sums = SumsOfStatistics(node);
  const BufferId workspace = AddScratch(NormWorkspace(places.norm.pixels, channels));
  const auto train = [=, program = &program_, rows = rows_,
                      state = state_](const Enqueue& how) -> absl::Status {
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
  Emit(node, train,
       {places.x.buffer, places.y.buffer, places.residual.buffer, places.mask, mean, variance,
        workspace});
}

void Compiler::LowerNormOfSums(const Node& node, const NormPlaces& places, BufferId computed) {
  const int64_t channels = places.norm.channels;
  const int64_t pixels = places.norm.pixels;
  const BufferId mean = PlainBuffer(node.outputs[1], channels * SizeOf(Type::kF32));
  const BufferId variance = PlainBuffer(node.outputs[2], channels * SizeOf(Type::kF32));
  const StatisticSums sums = SumsOfStatistics(node);
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
             {places.x.buffer, places.y.buffer, places.residual.buffer, places.mask, mean, variance,
              computed});
}

void Compiler::LowerNormApply(const Node& node) {
  const NormPlaces places = PlaceNorm(node);
  const BufferId mean = StatisticBuffer(node.inputs[3]);
  const BufferId variance = StatisticBuffer(node.inputs[4]);
  EmitKernel(
      node,
      [=, program = &program_, rows = rows_](const Enqueue& how) {
        const NormForward norm = Resolve(*program, places);
        ForEachGroup(*how.groups, rows, norm.pixels, [&](const GroupPixels& pixels) {
          const int64_t first = pixels.group * norm.channels;
          NormApply(PixelsOf(norm, pixels), program->ptr<float>(mean) + first,
                    program->ptr<float>(variance) + first, how.stream);
        });
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
  const auto train = [=, program = &program_, rows = rows_,
                      state = state_](const Enqueue& how) -> absl::Status {
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
    auto* const scratch = program->ptr<float>(workspace);
    if (how.ranks != nullptr) {
      NormBackwardSums(resolved, scratch, state.tickets, how.stream);
      TY_RETURN_IF_ERROR(SumOverRanks(how, resolved.channels, scratch));
      const int64_t count = how.ranks->rows() * (resolved.pixels / rows);
      if (resolved.dx) NormBackwardInput(resolved, scratch, count, how.stream);
      return absl::OkStatus();
    }
    ForEachGroup(*how.groups, rows, resolved.pixels, [&](const GroupPixels& pixels) {
      NormBackward(PixelsOf(resolved, pixels), scratch, state.tickets, how.stream);
    });
    return absl::OkStatus();
  };
  Emit(node, train,
       {dy.buffer, x.buffer, second.buffer, addend.buffer, mask.buffer, mean, variance, dx.buffer,
        residual.buffer, workspace});
}

}  // namespace trainyard::engine::cuda
