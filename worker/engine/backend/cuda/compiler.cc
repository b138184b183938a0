#include "worker/engine/backend/cuda/compiler.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "worker/engine/backend/cuda/kernels/input.h"
#include "worker/engine/backend/cuda/kernels/sequence.h"

namespace trainyard::engine::cuda {

Compiler::Compiler(const StepGraph& step, const ReductionLayout& reduction,
                   const StateMemory& state, const PackedWeights& weights,
                   const CompileTarget& target, const Program* larger, Program& program)
    : step_(step),
      reduction_(reduction),
      state_(state),
      weights_(weights),
      target_(target),
      rows_(target.rows),
      larger_(larger),
      program_(program) {}

absl::Status Compiler::Compile() {
  LowerInput();
  FindParts();
  const std::vector<int64_t> ready = ReadyAfterNodes(step_, reduction_);
  for (size_t i = 0; i < ready.size(); ++i) {
    const Node& node = step_.graph.nodes[i];
    TY_RETURN_IF_ERROR(Annotate(LowerNode(node), absl::StrCat("layer '", node.name, "'")));
    program_.SetReady(ready[i]);
  }
  const ValueId logits = step_.graph.logits;
  program_.logits = PlaceOf(logits).buffer;
  program_.logits_type = PlaceOf(logits).type;
  program_.logits_stride = PlaceOf(logits).stride;
  if (std::find(step_.kept.begin(), step_.kept.end(), logits) != step_.kept.end()) {
    program_.Keep(program_.logits);
  }
  if (step_.input_gradient != kNoValue) {
    LowerInputGradient();
  }
  program_.Plan(target_.is_guarded, larger_);
  return absl::OkStatus();
}

int64_t Compiler::ChannelsOf(const Shape& shape) {
  return shape.size() == 3 ? shape[0] : shape.back();
}

int64_t Compiler::PixelsPerRow(ValueId id) const {
  const Shape& shape = value(id).shape;
  if (shape.size() == 3) return shape[1] * shape[2];
  return shape.size() == 2 ? shape[0] : 1;
}

ImageShape Compiler::Image(ValueId id) const {
  const Shape& shape = value(id).shape;
  TY_CHECK(shape.size() == 3);
  return {rows_, shape[0], shape[1], shape[2]};
}

const Compiler::Place& Compiler::PlaceOf(ValueId id) const {
  const auto found = places_.find(id);
  TY_CHECK(found != places_.end());
  return found->second;
}

bool Compiler::ClearsPadding(const Place& place, ValueId id) const {
  const int64_t channels = Channels(id);
  return IsImage(id) && place.stride == PaddedChannels(channels, place.type) &&
         place.stride != channels;
}

Compiler::Place& Compiler::SharePlace(ValueId id, const Place& place) {
  return places_[id] = place;
}

Compiler::Place& Compiler::MakePlace(ValueId id, Type type) {
  const Shape& shape = value(id).shape;
  const bool is_logits = id == step_.graph.logits || value(id).primal == step_.graph.logits;
  const int64_t channels = Channels(id);
  const bool pads = shape.size() != 2 || is_logits;
  const int64_t stride = pads ? PaddedChannels(channels, type) : channels;
  return SharePlace(id, {AddScratch(Pixels(id) * stride * SizeOf(type)), 0, stride, type});
}

Compiler::Place& Compiler::MakeOutput(const Node& node, int index) {
  const ValueId output = node.outputs[static_cast<size_t>(index)];
  const int overwritten = node.OverwrittenBy(index);
  if (overwritten >= 0) {
    const ValueId input = node.inputs[static_cast<size_t>(overwritten)];
    const Place& place = PlaceOf(input);
    if (place.type == target_.type && Channels(input) == Channels(output)) {
      return SharePlace(output, place);
    }
  }
  const auto part = parts_.find(output);
  if (part == parts_.end()) return MakePlace(output, target_.type);
  const ValueId whole = part->second.whole;
  const Place& of_whole = places_.contains(whole) ? PlaceOf(whole) : MakePlace(whole, target_.type);
  Place place = of_whole;
  place.offset += part->second.first_channel;
  return SharePlace(output, place);
}

BufferId Compiler::PlainBuffer(ValueId id, int64_t bytes) {
  return SharePlace(id, {AddScratch(bytes), 0, 0, Type::kF32}).buffer;
}

BufferId Compiler::StatisticBuffer(ValueId id) {
  if (value(id).role != Role::kBuffer) return PlainBufferOf(id);
  return program_.AddFixedBuffer(state_.statistics + reduction_.entry(id).offset -
                                 reduction_.gradient_elements);
}

StatisticSums Compiler::SumsOfStatistics(const Node& norm) const {
  for (const BatchStatistics& statistics : step_.statistics) {
    if (statistics.mean == norm.outputs[1]) {
      return {state_.reduction + reduction_.entry(statistics.running_mean).offset,
              state_.reduction + reduction_.entry(statistics.running_variance).offset, false,
              state_.control};
    }
  }
  return {};  // computed once more, and counted already
}

void Compiler::Emit(const Node& node, std::function<absl::Status(const Enqueue&)> enqueue,
                    const Buffers& buffers) {
  Call call;
  call.op = std::string(OpName(node.op));
  call.name = absl::StrCat(node.name, " ", call.op, node.relu ? "+relu" : "");
  call.enqueue = std::move(enqueue);
  call.flops = NodeCost(step_.graph, node, rows_).flops;
  program_.Emit(std::move(call), buffers);
}

void Compiler::EmitKernel(const Node& node, std::function<void(const Enqueue&)> enqueue,
                          const Buffers& buffers) {
  Emit(
      node,
      [enqueue = std::move(enqueue)](const Enqueue& how) {
        enqueue(how);
        return absl::OkStatus();
      },
      buffers);
}

// Parts that are whole vectors of channels can be written in place; others are copied.
void Compiler::FindParts() {
  const int64_t vector = kVectorBytes / SizeOf(target_.type);
  for (const Node& node : step_.graph.nodes) {
    if (node.op != OpKind::kConcat) continue;
    const bool is_aligned = std::all_of(node.inputs.begin(), node.inputs.end(),
                                        [&](ValueId part) { return Channels(part) % vector == 0; });
    int64_t first_channel = 0;
    for (size_t i = 0; i < node.concat().placed.size(); ++i) {
      if (node.concat().placed[i] && is_aligned) {
        parts_[node.inputs[i]] = {node.outputs[0], first_channel};
      }
      first_channel += Channels(node.inputs[i]);
    }
  }
}

void Compiler::LowerInput() {
  const ValueId input = step_.graph.input;
  const StepControl* control = state_.control;
  Call call{.name = "input", .op = "input", .enqueue = nullptr};
  if (step_.graph.vocabulary > 0) {
    const int64_t count = Pixels(input) * Channels(input);
    const BufferId tokens = PlainBuffer(input, count * SizeOf(Type::kF32));
    call.enqueue = [=, program = &program_](const Enqueue& how) {
      ReadTokens(control, program->ptr<int32_t>(tokens), count, how.stream);
      return absl::OkStatus();
    };
  } else if (IsImage(input)) {
    const Place place = MakePlace(input, target_.type);
    const ImageShape shape = Image(input);
    call.enqueue = [=, program = &program_](const Enqueue& how) {
      ReadImages(control, program->At(place), shape, how.stream);
      return absl::OkStatus();
    };
  } else {
    const Place place = MakePlace(input, target_.type);
    const int64_t pixels = Pixels(input);
    const int64_t channels = Channels(input);
    call.enqueue = [=, program = &program_](const Enqueue& how) {
      ReadFeatures(control, program->At(place), pixels, channels, how.stream);
      return absl::OkStatus();
    };
  }
  program_.Emit(std::move(call), {PlaceOf(input).buffer});
}

void Compiler::LowerInputGradient() {
  const ValueId gradient = step_.input_gradient;
  const Place from = PlaceOf(gradient);
  const int64_t pixels = Pixels(gradient);
  const int64_t channels = Channels(gradient);
  const BufferId to = AddScratch(pixels * channels * SizeOf(Type::kF32));
  Call call{.name = "input gradient", .op = "copy", .enqueue = nullptr};
  if (IsImage(gradient)) {
    const ImageShape shape = Image(gradient);
    call.enqueue = [=, program = &program_](const Enqueue& how) {
      WriteImages(program->At(from), program->ptr<float>(to), shape, how.stream);
      return absl::OkStatus();
    };
  } else {
    call.enqueue = [=, program = &program_](const Enqueue& how) {
      Copy(program->At(from), {program->ptr<float>(to), channels, Type::kF32}, pixels, channels,
           false, how.stream);
      return absl::OkStatus();
    };
  }
  program_.Emit(std::move(call), {from.buffer, to});
  program_.input_gradient = to;
  program_.Keep(to);
}

absl::Status Compiler::LowerNode(const Node& node) {
  switch (node.op) {
    case OpKind::kConv2d:
      return LowerConv(node);
    case OpKind::kConv2dInputGradient:
      return LowerConvInputGradient(node);
    case OpKind::kConv2dParameterGradient:
      return LowerConvParameterGradient(node);
    case OpKind::kLinear:
      return LowerLinear(node);
    case OpKind::kLinearInputGradient:
      return LowerLinearInputGradient(node);
    case OpKind::kLinearParameterGradient:
      return LowerLinearParameterGradient(node);
    case OpKind::kAttention:
      return LowerAttention(node);
    case OpKind::kAttentionGradient:
      return LowerAttentionGradient(node);
    default:
      LowerToKernels(node);
      return absl::OkStatus();
  }
}

void Compiler::LowerToKernels(const Node& node) {
  switch (node.op) {
    case OpKind::kBatchNorm:
      return node.norm().batch_statistics ? LowerNorm(node) : LowerNormApply(node);
    case OpKind::kBatchNormGradient:
      return LowerNormGradient(node);
    case OpKind::kRelu:
    case OpKind::kTanh:
    case OpKind::kSigmoid:
    case OpKind::kGelu:
      return LowerElementwise(node);
    case OpKind::kReluGradient:
    case OpKind::kTanhGradient:
    case OpKind::kSigmoidGradient:
    case OpKind::kGeluGradient:
      return LowerElementwiseGradient(node);
    case OpKind::kDropout:
      return LowerDropout(node);
    case OpKind::kConcat:
      return LowerConcat(node);
    case OpKind::kSlice:
      return LowerSlice(node);
    case OpKind::kLrn:
    case OpKind::kLrnGradient:
      return LowerLrn(node);
    case OpKind::kLayerNorm:
      return LowerLayerNorm(node);
    case OpKind::kLayerNormGradient:
      return LowerLayerNormGradient(node);
    case OpKind::kEmbedding:
      return LowerEmbedding(node);
    case OpKind::kEmbeddingGradient:
      return LowerEmbeddingGradient(node);
    case OpKind::kPositionEmbedding:
      return LowerPositionEmbedding(node);
    case OpKind::kPositionEmbeddingGradient:
      return LowerPositionEmbeddingGradient(node);
    case OpKind::kAdd:
      return LowerAdd(node);
    case OpKind::kFlatten:
      return LowerFlatten(node);
    case OpKind::kFlattenGradient:
      return LowerFlattenGradient(node);
    case OpKind::kMaxPool:
    case OpKind::kAvgPool:
      return LowerPool(node);
    case OpKind::kMaxPoolGradient:
    case OpKind::kAvgPoolGradient:
      return LowerPoolGradient(node);
    case OpKind::kGlobalAvgPool:
      return LowerGlobalPool(node);
    case OpKind::kGlobalAvgPoolGradient:
      return LowerGlobalPoolGradient(node);
    case OpKind::kSoftmaxCrossEntropy:
      return LowerLoss(node);
    case OpKind::kSoftmaxCrossEntropyGradient:
      return LowerLossGradient(node);
    default:
      TY_CHECK(false);
  }
}

}  // namespace trainyard::engine::cuda
