// Lowers the ends of a stage of a pipeline. Values at its boundaries lie in memory of their own,
// one for each slot, which the executable hands to the program before each half of a step.
#include "worker/engine/backend/cuda/lower_stage.h"

#include "worker/engine/backend/cuda/boundary.h"
#include "worker/engine/backend/cuda/kernels/elementwise.h"
#include "worker/engine/backend/cuda/kernels/norm.h"
#include "worker/engine/backend/cuda/lower_ops.h"

namespace trainyard::engine::cuda {
namespace {

// Returns the place of `value` in memory that the executable names later.
Place AddBoundary(Lowering& lowering, ValueId value) {
  const Type type = lowering.target().type;
  const BoundaryLayout layout = LayOutBoundary(lowering.value(value).shape, type);
  return {lowering.program().AddFixedBuffer(nullptr), 0, layout.stride, type};
}

// Emits a copy of `value`, and clears the padding of what it writes.
void EmitCopy(Lowering& lowering, const char* name, ValueId value, const Place& from,
              const Place& to) {
  const int64_t pixels = lowering.Pixels(value);
  const int64_t channels = lowering.Channels(value);
  Call call;
  call.name = name;
  call.op = "copy";
  call.bytes = 2 * lowering.Bytes(value);
  call.enqueue = [=, clears = to.stride != channels,
                  program = &lowering.program()](const Enqueue& how) {
    Copy(program->At(from), program->At(to), pixels, channels, clears, how.stream);
    return absl::OkStatus();
  };
  lowering.program().Emit(std::move(call), {from.buffer, to.buffer});
}

}  // namespace

void LowerStageInput(Lowering& lowering) {
  const ValueId input = lowering.step().graph.input;
  const Place place = AddBoundary(lowering, input);
  lowering.program().boundary.inputs = place.buffer;
  if (input != lowering.step().graph.logits) {
    lowering.SharePlace(input, place);
    return;
  }
  // The stage has nothing but the loss, whose kernel wants logits to be padded in any shape.
  const Place logits = lowering.MakePlace(input, place.type);
  EmitCopy(lowering, "stage input", input, place, logits);
}

void LowerStageInputGradient(Lowering& lowering) {
  const ValueId gradient = lowering.step().input_gradient;
  const Place place = AddBoundary(lowering, lowering.step().graph.input);
  lowering.program().boundary.input_gradients = place.buffer;
  EmitCopy(lowering, "stage input gradient", gradient, lowering.PlaceOf(gradient), place);
}

absl::Status LowerStageOutput(Lowering& lowering, const Node& node) {
  const Place place = AddBoundary(lowering, node.outputs[0]);
  lowering.program().boundary.outputs = place.buffer;
  EmitCopy(lowering, "stage output", node.inputs[0], lowering.PlaceOf(node.inputs[0]), place);
  lowering.SharePlace(node.outputs[0], place);
  return absl::OkStatus();
}

absl::Status LowerStageOutputGradient(Lowering& lowering, const Node& node) {
  const Place place = AddBoundary(lowering, node.outputs[0]);
  lowering.program().boundary.output_gradients = place.buffer;
  lowering.SharePlace(node.outputs[0], place);
  return absl::OkStatus();
}

void LowerStageStatistics(Lowering& lowering) {
  for (const BatchStatistics& statistics : lowering.step().statistics) {
    const BufferId mean = lowering.PlainBufferOf(statistics.mean);
    const BufferId variance = lowering.PlainBufferOf(statistics.variance);
    const int64_t channels = lowering.reduction().entry(statistics.running_mean).count;
    const StatisticSums sums = lowering.SumsAt(statistics);
    Call call;
    call.name = statistics.layer + " statistics";
    call.op = "copy";
    call.bytes = 4 * static_cast<double>(channels * SizeOf(Type::kF32));
    call.enqueue = [=, program = &lowering.program(), rows = lowering.rows(),
                    per_row = statistics.count_per_row](const Enqueue& how) {
      StatisticSums into = sums;
      into.adds = how.adds;
      into.control = how.control;
      const NormGroups groups = {.count = how.groups, .begins = how.group_begins, .plane = per_row};
      NormSumStatistics(program->ptr<float>(mean), program->ptr<float>(variance), groups,
                        rows * per_row, channels, into, how.stream);
      return absl::OkStatus();
    };
    lowering.program().Emit(std::move(call), {mean, variance});
  }
}

}  // namespace trainyard::engine::cuda
