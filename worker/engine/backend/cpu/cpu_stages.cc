// Runs microbatches on the CPU: the training program in two halves, each slot with an arena of its
// own.
#include <algorithm>

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "worker/engine/backend/cpu/cpu_executable.h"

namespace trainyard::engine::cpu {

void CpuExecutable::AddBoundaries() {
  if (options_.microbatch_slots == 0) return;
  const auto bytes_of = [this](ValueId value) {
    return model_.value(value).Elements(options_.max_rows) * int64_t{sizeof(float)};
  };
  for (Slot& slot : slots_) {
    if (model_.has_stage_input) {
      slot.inputs = AlignedBuffer(bytes_of(model_.input), backing_);
      slot.input_gradients = AlignedBuffer(bytes_of(model_.input), backing_);
    }
    if (!model_.has_loss()) {
      slot.outputs = AlignedBuffer(bytes_of(model_.stage_output), backing_);
      slot.output_gradients = AlignedBuffer(bytes_of(model_.stage_output), backing_);
    }
    for (const AlignedBuffer* buffer :
         {&slot.inputs, &slot.outputs, &slot.input_gradients, &slot.output_gradients}) {
      boundary_bytes_ += buffer->bytes();
    }
  }
}

PipelineStage::Boundary CpuExecutable::boundary(int slot, int64_t rows) {
  TY_CHECK(CheckSlot(options_, slot).ok() && rows >= 1 && rows <= options_.max_rows);
  const Slot& of = slots_[static_cast<size_t>(slot)];
  const auto span = [this, rows](const AlignedBuffer& buffer, ValueId value) {
    if (buffer.data() == nullptr) return absl::Span<float>();
    return absl::Span<float>(buffer.as<float>(),
                             static_cast<size_t>(model_.value(value).Elements(rows)));
  };
  return {span(of.inputs, model_.input), span(of.outputs, model_.stage_output),
          span(of.input_gradients, model_.input), span(of.output_gradients, model_.stage_output)};
}

const float* CpuExecutable::InputsOf(const Batch& batch, int slot) {
  return model_.has_stage_input ? slots_[static_cast<size_t>(slot)].inputs.as<float>()
                                : batch.inputs.data();
}

absl::Status CpuExecutable::Forward(const Batch& batch, int64_t rows, int slot) {
  TY_RETURN_IF_ERROR(CheckSlot(options_, slot));
  TY_RETURN_IF_ERROR(CheckStageBatch(model_, batch, rows, options_.max_rows));
  TY_RETURN_IF_ERROR(CheckStatistics(training_, options_, batch.groups, rows));
  TY_ASSIGN_OR_RETURN(Program * program, Prepare(training_, training_programs_, rows));
  last_rows_ = 0;
  Slot& kept = slots_[static_cast<size_t>(slot)];
  kept.state = TrainingState(batch);
  kept.state.stage_output = kept.outputs.as<float>();
  kept.state.stage_output_gradient = kept.output_gradients.as<float>();
  kept.rows = rows;
  return Run(*program, InputsOf(batch, slot), program->forward_calls, kept.state, nullptr, nullptr,
             /*first=*/0, slot);
}

absl::Status CpuExecutable::Backward(const Batch& batch, int64_t rows, int slot, double weight,
                                     const ReadyCallback& on_ready) {
  TY_RETURN_IF_ERROR(CheckSlot(options_, slot));
  TY_RETURN_IF_ERROR(CheckStageBatch(model_, batch, rows, options_.max_rows));
  Slot& kept = slots_[static_cast<size_t>(slot)];
  TY_RETURN_IF_ERROR(CheckForwardDone(kept.rows, rows, slot));
  kept.rows = 0;
  kept.state.labels = batch.labels.data();
  groups_.Set(batch.groups);
  Program& program = *training_programs_.at(rows);
  TY_RETURN_IF_ERROR(RunToReduction(program, InputsOf(batch, slot), program.forward_calls, slot,
                                    rows, weight, kept.state, on_ready));
  if (model_.has_stage_input) {
    std::copy_n(program.ptr<float>(program.input_gradient),
                model_.value(model_.input).Elements(rows), kept.input_gradients.as<float>());
  }
  return absl::OkStatus();
}

absl::StatusOr<Evaluation> CpuExecutable::EvaluateStage(const Batch& batch, int64_t rows) {
  TY_RETURN_IF_ERROR(CheckSlot(options_, 0));
  TY_RETURN_IF_ERROR(CheckStageBatch(model_, batch, rows, options_.max_rows));
  TY_ASSIGN_OR_RETURN(Program * program, Prepare(evaluation_, evaluation_programs_, rows));
  last_rows_ = 0;
  RunState state;
  state.labels = batch.labels.data();
  state.counts_top5 = true;
  state.stage_output = slots_[0].outputs.as<float>();
  TY_RETURN_IF_ERROR(
      Run(*program, InputsOf(batch, 0), program->calls().size(), state, nullptr, nullptr));
  if (!model_.has_loss()) return Evaluation{};
  const int64_t labels = rows * model_.labels_per_row();
  return Evaluation{state.loss * static_cast<double>(labels), state.correct, labels, state.top5};
}

}  // namespace trainyard::engine::cpu
