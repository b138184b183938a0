// Turns a step graph into a program in the order of its nodes, with a table of the functions that
// lower the ops.
#include "worker/engine/backend/cuda/compiler.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "worker/engine/backend/cuda/kernels/elementwise.h"
#include "worker/engine/backend/cuda/kernels/input.h"
#include "worker/engine/backend/cuda/kernels/sequence.h"
#include "worker/engine/backend/cuda/lower_ops.h"
#include "worker/engine/backend/cuda/lower_stage.h"

namespace trainyard::engine::cuda {

namespace {

// The table is by op. The functions are in lower_*.cc, and the list of ops is that of the graph.
constexpr absl::Status (*kLowerings[])(Lowering&, const Node&) = {
#define TY_OP(kind, name) Lower##kind,
#include "worker/engine/graph/ops.def"
#undef TY_OP
};

absl::Status LowerNode(Lowering& lowering, const Node& node) {
  return Annotate(kLowerings[static_cast<size_t>(node.op)](lowering, node),
                  absl::StrCat("layer '", node.name, "'"));
}

void LowerInput(Lowering& lowering) {
  const ValueId input = lowering.step().graph.input;
  Call call;
  call.name = call.op = "input";
  if (lowering.step().graph.vocabulary > 0) {
    const int64_t count = lowering.Pixels(input) * lowering.Channels(input);
    const BufferId tokens = lowering.PlainBuffer(input, count * SizeOf(Type::kF32));
    call.enqueue = [=, program = &lowering.program()](const Enqueue& how) {
      ReadTokens(how.control, program->ptr<int32_t>(tokens), count, how.stream);
      return absl::OkStatus();
    };
  } else if (lowering.IsImage(input)) {
    const Place place = lowering.MakePlace(input, lowering.target().type);
    const ImageShape shape = lowering.Image(input);
    call.enqueue = [=, program = &lowering.program()](const Enqueue& how) {
      ReadImages(how.control, program->At(place), shape, how.stream);
      return absl::OkStatus();
    };
  } else {
    const Place place = lowering.MakePlace(input, lowering.target().type);
    const int64_t pixels = lowering.Pixels(input);
    const int64_t channels = lowering.Channels(input);
    call.enqueue = [=, program = &lowering.program()](const Enqueue& how) {
      ReadFeatures(how.control, program->At(place), pixels, channels, how.stream);
      return absl::OkStatus();
    };
  }
  // The host's values have 4 bytes each.
  call.bytes = lowering.Bytes(input) +
               static_cast<double>(lowering.value(input).Elements(lowering.rows())) * 4;
  lowering.program().Emit(std::move(call), {lowering.PlaceOf(input).buffer});
}

void LowerInputGradient(Lowering& lowering) {
  const ValueId gradient = lowering.step().input_gradient;
  const Place from = lowering.PlaceOf(gradient);
  const int64_t pixels = lowering.Pixels(gradient);
  const int64_t channels = lowering.Channels(gradient);
  const BufferId to = lowering.AddScratch(pixels * channels * SizeOf(Type::kF32));
  Call call;
  call.name = "input gradient";
  call.op = "copy";
  if (lowering.IsImage(gradient)) {
    const ImageShape shape = lowering.Image(gradient);
    call.enqueue = [=, program = &lowering.program()](const Enqueue& how) {
      WriteImages(program->At(from), program->ptr<float>(to), shape, how.stream);
      return absl::OkStatus();
    };
  } else {
    call.enqueue = [=, program = &lowering.program()](const Enqueue& how) {
      Copy(program->At(from), {program->ptr<float>(to), channels, Type::kF32}, pixels, channels,
           false, how.stream);
      return absl::OkStatus();
    };
  }
  lowering.program().Emit(std::move(call), {from.buffer, to});
  lowering.program().input_gradient = to;
  lowering.program().Keep(to);
}

void NoteLogits(Lowering& lowering) {
  const StepGraph& step = lowering.step();
  const ValueId logits = step.graph.logits;
  const Place& place = lowering.PlaceOf(logits);
  Program& program = lowering.program();
  program.logits = place.buffer;
  program.logits_type = place.type;
  program.logits_stride = place.stride;
  if (std::find(step.kept.begin(), step.kept.end(), logits) != step.kept.end()) {
    program.Keep(program.logits);
  }
}

}  // namespace

absl::Status Compile(const StepGraph& step, const ReductionLayout& reduction,
                     const StepMemory& state, const PackedWeights& weights,
                     const CompileTarget& target, const Program* larger, Program& program) {
  Lowering lowering(step, reduction, state, weights, target, program);
  const bool has_stage_input = step.graph.has_stage_input;
  has_stage_input ? LowerStageInput(lowering) : LowerInput(lowering);
  const std::vector<int64_t> ready = ReadyAfterNodes(step, reduction);
  const size_t forward_nodes = ForwardNodes(step);
  for (size_t i = 0; i < ready.size(); ++i) {
    const Node& node = step.graph.nodes[i];
    if (!lowering.taken.contains(&node)) TY_RETURN_IF_ERROR(LowerNode(lowering, node));
    program.SetReady(ready[i]);
    if (i + 1 != forward_nodes) continue;
    program.forward_calls = program.calls().size();
    if (target.is_training && target.is_halved) LowerStageStatistics(lowering);
  }
  if (step.graph.has_loss()) NoteLogits(lowering);
  if (step.input_gradient != kNoValue) {
    has_stage_input ? LowerStageInputGradient(lowering) : LowerInputGradient(lowering);
  }
  program.Plan(target.is_guarded, larger);
  return absl::OkStatus();
}

}  // namespace trainyard::engine::cuda
