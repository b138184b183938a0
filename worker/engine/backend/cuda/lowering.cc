// Decides where the values of a program lie, and adds calls to it.
#include "worker/engine/backend/cuda/lowering.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "worker/engine/backend/cuda/kernels/elementwise.h"
#include "worker/engine/graph/cost.h"

namespace trainyard::engine::cuda {
namespace {

// Returns true for gradients of weights and biases that nothing else in the step waits for. They
// run beside the gradient of the layer's input, which has the same dy.
bool BeginsBranch(OpKind op) {
  return op == OpKind::kConv2dParameterGradient || op == OpKind::kLinearParameterGradient;
}

}  // namespace

Lowering::Lowering(const StepGraph& step, const ReductionLayout& reduction, const StepMemory& state,
                   const PackedWeights& weights, const CompileTarget& target, Program& program)
    : step_(step),
      reduction_(reduction),
      state_(state),
      weights_(weights),
      target_(target),
      program_(program) {
  // Parts that are whole vectors of channels can be written in place; others are copied.
  const int64_t vector = kVectorBytes / SizeOf(target_.type);
  for (const auto& [id, part] : PlacedParts(step_.graph)) {
    if (part.divisor % vector == 0 && Channels(part.whole) % vector == 0) parts_[id] = part;
  }
}

int64_t Lowering::Channels(ValueId id) const {
  const Shape& shape = value(id).shape;
  return shape.size() == 3 ? shape[0] : shape.back();
}

int64_t Lowering::PixelsPerRow(ValueId id) const {
  const Shape& shape = value(id).shape;
  if (shape.size() == 3) return shape[1] * shape[2];
  return shape.size() == 2 ? shape[0] : 1;
}

ImageShape Lowering::Image(ValueId id) const {
  const Shape& shape = value(id).shape;
  TY_CHECK(shape.size() == 3);
  return {rows(), shape[0], shape[1], shape[2]};
}

const Place& Lowering::PlaceOf(ValueId id) const {
  const auto found = places_.find(id);
  TY_CHECK(found != places_.end());
  return found->second;
}

bool Lowering::ClearsPadding(const Place& place, ValueId id) const {
  const int64_t channels = Channels(id);
  return IsImage(id) && place.stride == PaddedChannels(channels, place.type) &&
         place.stride != channels;
}

Place& Lowering::SharePlace(ValueId id, const Place& place) {
  return places_[id] = place;
}

Place& Lowering::MakePlace(ValueId id, Type type) {
  const Shape& shape = value(id).shape;
  const ValueId logits = step_.graph.logits;
  const bool is_logits = logits != kNoValue && (id == logits || value(id).primal == logits);
  const int64_t channels = Channels(id);
  const bool pads = shape.size() != 2 || is_logits;
  const int64_t stride = pads ? PaddedChannels(channels, type) : channels;
  return SharePlace(id, {AddScratch(Pixels(id) * stride * SizeOf(type)), 0, stride, type});
}

Place& Lowering::MakeOutput(const Node& node, int index) {
  const ValueId output = node.outputs[static_cast<size_t>(index)];
  const int overwritten = node.OverwrittenBy(index);
  if (overwritten >= 0 && HasPlace(node.inputs[static_cast<size_t>(overwritten)])) {
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

// Convolutions may read a filter together with others, in a copy for all of them.
Type Lowering::TypeRead(ValueId parameter) const {
  if (value(parameter).shape.size() == 4) return target_.type;
  return weights_.Has({parameter}) ? weights_.copy({parameter}).type : Type::kF32;
}

double Lowering::Bytes(ValueId id) const {
  if (id == kNoValue) return 0;
  if (const auto plain = plain_bytes_.find(id); plain != plain_bytes_.end()) return plain->second;
  if (HasPlace(id)) {
    return static_cast<double>(Pixels(id) * Channels(id) * SizeOf(PlaceOf(id).type));
  }
  const auto elements = static_cast<double>(value(id).Elements(rows()));
  switch (value(id).role) {
    case Role::kParameter:
      return elements * static_cast<double>(SizeOf(TypeRead(id)));
    case Role::kParameterGradient:
    case Role::kBuffer:
    case Role::kLabels:
      return elements * static_cast<double>(SizeOf(Type::kF32));
    default:
      return 0;
  }
}

BufferId Lowering::PlainBuffer(ValueId id, int64_t bytes) {
  plain_bytes_[id] = static_cast<double>(bytes);
  return SharePlace(id, {AddScratch(bytes), 0, 0, Type::kF32}).buffer;
}

BufferId Lowering::StatisticBuffer(ValueId id) {
  if (value(id).role != Role::kBuffer) return PlainBufferOf(id);
  return program_.AddFixedBuffer(state_.statistics + reduction_.entry(id).offset -
                                 reduction_.gradient_elements);
}

StatisticSums Lowering::SumsAt(const BatchStatistics& statistics) const {
  return {state_.reduction + reduction_.entry(statistics.running_mean).offset,
          state_.reduction + reduction_.entry(statistics.running_variance).offset};
}

StatisticSums Lowering::SumsOfStatistics(const Node& norm) const {
  if (target_.is_halved) return {};  // see LowerStageStatistics
  for (const BatchStatistics& statistics : step_.statistics) {
    if (statistics.mean == norm.outputs[1]) return SumsAt(statistics);
  }
  return {};  // a recomputed norm, whose statistics were counted already
}

void Lowering::Emit(const Node& node, std::function<absl::Status(const Enqueue&)> enqueue,
                    const Buffers& buffers, const Traffic& traffic) {
  Call call;
  call.op = std::string(OpName(node.op));
  call.name = absl::StrCat(node.name, " ", call.op, node.relu ? "+relu" : "",
                           traffic.taken != nullptr ? "+" : "",
                           traffic.taken != nullptr ? OpName(traffic.taken->op) : "");
  if (node.adds) {
    call.enqueue = [enqueue = std::move(enqueue)](const Enqueue& how) {
      Enqueue adding = how;
      adding.adds = true;
      return enqueue(adding);
    };
  } else {
    call.enqueue = std::move(enqueue);
  }
  call.kernels = traffic.kernels;
  call.bytes = traffic.bytes;
  call.more_bytes = traffic.more_bytes;
  if (traffic.has_tensors) {
    call.flops = NodeCost(step_.graph, node, rows()).flops;
    for (const ValueId id : node.inputs) call.bytes += Bytes(id);
    for (const ValueId id : node.outputs) call.bytes += Bytes(id);
  }
  if (traffic.taken != nullptr) CountTaken(node, *traffic.taken, call);
  call.is_side = target_.has_branches && BeginsBranch(node.op);
  program_.Emit(std::move(call), AccessesOf(node, buffers));
}

Accesses Lowering::AccessesOf(const Node& node, const Buffers& buffers) {
  Accesses accesses;
  std::set<BufferId> outputs, inputs;
  for (const ValueId id : node.outputs) {
    if (id == kNoValue) continue;
    if (HasPlace(id)) outputs.insert(PlaceOf(id).buffer);
    if (value(id).role != Role::kParameterGradient) continue;
    // Several nodes may write the gradient of a shared parameter.
    const auto [sums, is_new] = sums_.try_emplace(id, kNoBuffer);
    if (is_new) sums->second = program_.AddFixedBuffer(Sums(id));
    accesses.writes.push_back(sums->second);
  }
  for (const ValueId id : node.inputs) {
    if (id != kNoValue && HasPlace(id)) inputs.insert(PlaceOf(id).buffer);
  }
  for (const BufferId buffer : buffers) {
    const bool is_read = inputs.contains(buffer) && !outputs.contains(buffer);
    (is_read ? accesses.reads : accesses.writes).push_back(buffer);
  }
  return accesses;
}

void Lowering::CountTaken(const Node& node, const Node& next, Call& call) const {
  call.flops += NodeCost(step_.graph, next, rows()).flops;
  for (const ValueId id : next.inputs) {
    // The value between the two was counted with the first, if it reaches memory at all.
    if (id != node.outputs[0]) call.bytes += Bytes(id);
  }
  for (const ValueId id : next.outputs) call.bytes += Bytes(id);
}

void Lowering::FallBack(const Node& node, const absl::Status& refusal) {
  program_.fallbacks.push_back({.layer = node.name,
                                .op = std::string(OpName(node.op)),
                                .reason = std::string(refusal.message())});
}

void Lowering::EmitKernel(const Node& node, std::function<void(const Enqueue&)> enqueue,
                          const Buffers& buffers, const Traffic& traffic) {
  Emit(
      node,
      [enqueue = std::move(enqueue)](const Enqueue& how) {
        enqueue(how);
        return absl::OkStatus();
      },
      buffers, traffic);
}

void Lowering::EmitBiasGradient(const Node& node, ValueId dy_id, int64_t first_channel,
                                ValueId dbias, const UnpackedLater& other) {
  Place dy = PlaceOf(dy_id);
  dy.offset += first_channel;
  const int64_t pixels = Pixels(dy_id);
  const int64_t channels = SumsCount(dbias);
  float* const sums = Sums(dbias);
  const BufferId workspace = AddScratch(ColumnSumWorkspace(pixels, channels));
  const int64_t bytes = pixels * channels * SizeOf(dy.type) + other.bytes;
  EmitKernel(node,
             [=, program = &program_](const Enqueue& how) {
               const PackedGradient packed =
                   other.gradient ? other.gradient(how) : PackedGradient();
               ColumnSum(program->At(dy), pixels, channels, how.adds, sums,
                         program->ptr<void>(workspace), how.tickets, packed, how.stream);
             },
             {dy.buffer, workspace, other.buffer},
             {.bytes = static_cast<double>(bytes), .has_tensors = false});
}

}  // namespace trainyard::engine::cuda
