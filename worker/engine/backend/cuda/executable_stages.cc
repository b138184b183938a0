// Runs microbatches on the GPU: the training program in two halves, each slot with an arena and
// boundaries of its own. Both halves are enqueued, and recorded for each slot, since a graph holds
// the addresses of what it works on.
#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "worker/engine/backend/cuda/boundary.h"
#include "worker/engine/backend/cuda/cuda_executable.h"

namespace trainyard::engine::cuda {

int64_t CudaExecutable::BoundaryBytes(ValueId value, int64_t rows) const {
  return LayOutBoundary(model_.value(value).shape, type_).Bytes(rows, type_);
}

absl::Status CudaExecutable::AllocateBoundaries() {
  if (options_.microbatch_slots == 0) return absl::OkStatus();
  const auto make = [this](ValueId value) {
    return DeviceBuffer::Create(BoundaryBytes(value, options_.max_rows), backing_);
  };
  for (Slot& slot : slots_) {
    if (model_.has_stage_input) {
      TY_ASSIGN_OR_RETURN(slot.inputs, make(model_.input));
      TY_ASSIGN_OR_RETURN(slot.input_gradients, make(model_.input));
    }
    if (!model_.has_loss()) {
      TY_ASSIGN_OR_RETURN(slot.outputs, make(model_.stage_output));
      TY_ASSIGN_OR_RETURN(slot.output_gradients, make(model_.stage_output));
    }
  }
  return absl::OkStatus();
}

absl::Status CudaExecutable::GrowArenas() {
  for (Slot& slot : slots_) {
    // Releases the old arena before the larger one is allocated, unless it keeps activations.
    if (slot.rows == 0) slot.arena = DeviceBuffer();
    TY_ASSIGN_OR_RETURN(DeviceBuffer larger, DeviceBuffer::Create(arena_bytes_, backing_));
    if (slot.rows > 0) {
      TY_RETURN_IF_ERROR(CudaStatus(
          cudaMemcpyAsync(larger.data(), slot.arena.data(), static_cast<size_t>(slot.arena.bytes()),
                          cudaMemcpyDeviceToDevice, stream_.get()),
          "moving activations"));
      TY_RETURN_IF_ERROR(Wait());
    }
    slot.arena = std::move(larger);
  }
  return absl::OkStatus();
}

void CudaExecutable::ReleaseArenas() {
  for (Slot& slot : slots_) {
    slot.arena = DeviceBuffer();
    slot.rows = 0;
  }
  arena_bytes_ = 0;
}

int64_t CudaExecutable::SlotBytes() const {
  int64_t bytes = AlignUpDevice(arena_bytes_) * static_cast<int64_t>(slots_.size());
  for (const Slot& slot : slots_) {
    bytes += slot.inputs.bytes() + slot.outputs.bytes() + slot.input_gradients.bytes() +
             slot.output_gradients.bytes();
  }
  return bytes;
}

void CudaExecutable::BindSlot(Program& program, int slot) const {
  const Slot& of = slots_[static_cast<size_t>(slot)];
  program.Bind(of.arena.data());
  program.SetFixed(program.boundary.inputs, of.inputs.data());
  program.SetFixed(program.boundary.outputs, of.outputs.data());
  program.SetFixed(program.boundary.input_gradients, of.input_gradients.data());
  program.SetFixed(program.boundary.output_gradients, of.output_gradients.data());
}

PipelineStage::Boundary CudaExecutable::boundary(int slot, int64_t rows) {
  TY_CHECK(CheckSlot(options_, slot).ok() && rows >= 1 && rows <= options_.max_rows);
  const Slot& of = slots_[static_cast<size_t>(slot)];
  const auto span = [this, rows](const DeviceBuffer& buffer, ValueId value) {
    if (buffer.bytes() == 0) return absl::Span<float>();
    // The last float may be half full. A buffer has room for whole ones.
    constexpr int64_t kFloat = sizeof(float);
    const int64_t floats = (BoundaryBytes(value, rows) + kFloat - 1) / kFloat;
    return absl::Span<float>(buffer.as<float>(), static_cast<size_t>(floats));
  };
  return {span(of.inputs, model_.input), span(of.outputs, model_.stage_output),
          span(of.input_gradients, model_.input), span(of.output_gradients, model_.stage_output)};
}

absl::Status CudaExecutable::RunHalf(const Recording& calls, Program& program,
                                     const ReadyCallback& on_ready) {
  TY_RETURN_IF_ERROR(stage_timer_.Begin(stream_.get()));
  const absl::Status ran = RunCalls(program, calls, Training(calls.work == Work::kAdd), on_ready);
  TY_RETURN_IF_ERROR(staging_.Release(stream_.get()));
  TY_RETURN_IF_ERROR(ran);
  return stage_timer_.End(stream_.get());
}

absl::Status CudaExecutable::Forward(const Batch& batch, int64_t rows, int slot) {
  TY_RETURN_IF_ERROR(CheckSlot(options_, slot));
  TY_RETURN_IF_ERROR(CheckStageBatch(model_, batch, rows, options_.max_rows));
  TY_RETURN_IF_ERROR(CheckStatistics(training_, options_, batch.groups, rows));
  groups_.Set({});
  TY_ASSIGN_OR_RETURN(Program * program, Prepare(training_, training_programs_, rows));
  last_rows_ = 0;
  TY_RETURN_IF_ERROR(RefreshWeights());
  Batch read = batch;
  if (model_.has_stage_input) read.inputs = {};
  read.labels = {};  // they are read together with the gradient of the loss
  TY_RETURN_IF_ERROR(Send(read, /*group_begins=*/{}, /*weight=*/0, /*lr=*/0));
  // Nothing that a half leaves behind which fails is of use.
  int64_t& kept_rows = slots_[static_cast<size_t>(slot)].rows;
  kept_rows = 0;
  TY_RETURN_IF_ERROR(RunHalf({.work = Work::kAccumulate,
                              .rows = rows,
                              .begin = 0,
                              .end = program->forward_calls,
                              .slot = slot},
                             *program, /*on_ready=*/{}));
  kept_rows = rows;
  return absl::OkStatus();
}

absl::Status CudaExecutable::Backward(const Batch& batch, int64_t rows, int slot, double weight,
                                      const ReadyCallback& on_ready) {
  TY_RETURN_IF_ERROR(CheckSlot(options_, slot));
  TY_RETURN_IF_ERROR(CheckStageBatch(model_, batch, rows, options_.max_rows));
  int64_t& kept_rows = slots_[static_cast<size_t>(slot)].rows;
  TY_RETURN_IF_ERROR(CheckForwardDone(kept_rows, rows, slot));
  kept_rows = 0;
  Batch read = batch;
  read.inputs = {};  // the forward half has read them
  if (!model_.has_loss()) read.labels = {};
  groups_.Set({});
  TY_RETURN_IF_ERROR(Send(read, /*group_begins=*/{}, weight, /*lr=*/0));
  Program& program = *training_programs_.at(rows);
  return RunHalf({.work = SumsWork(),
                  .rows = rows,
                  .begin = program.forward_calls,
                  .end = program.calls().size(),
                  .slot = slot},
                 program, on_ready);
}

absl::StatusOr<Evaluation> CudaExecutable::EvaluateStage(const Batch& batch, int64_t rows) {
  TY_RETURN_IF_ERROR(CheckSlot(options_, 0));
  TY_RETURN_IF_ERROR(CheckStageBatch(model_, batch, rows, options_.max_rows));
  TY_ASSIGN_OR_RETURN(Program * program, Prepare(evaluation_, evaluation_programs_, rows));
  TY_RETURN_IF_ERROR(RefreshWeights());
  last_rows_ = 0;
  Batch read = batch;
  if (model_.has_stage_input) read.inputs = {};
  if (!model_.has_loss()) read.labels = {};
  TY_RETURN_IF_ERROR(Send(read, /*group_begins=*/{}, 0, 0));
  TY_RETURN_IF_ERROR(Run({.work = Work::kEvaluate, .rows = rows}, [&] {
    BindSlot(*program, 0);
    return program->Run(0, program->calls().size(), Evaluating());
  }));
  TY_RETURN_IF_ERROR(staging_.Release(stream_.get()));
  if (!model_.has_loss()) return Evaluation{};
  return ReadEvaluation(rows * model_.labels_per_row());
}

}  // namespace trainyard::engine::cuda
