// Executes the actions of the schedule one by one. Receiving blocks; sending continues in the
// background. A device computes in the background, too, so that the host waits there only for what
// comes from the neighbours.
#include "worker/trainer/pipeline/pipeline_executable.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "worker/engine/graph/split.h"
#include "worker/parallel/replicas.h"

namespace trainyard::trainer {
namespace {

// The ranks of two neighbours in the lines between them.
constexpr int kBefore = 0;
constexpr int kAfter = 1;

// The loss scale follows the gradients, and a stage may meet one that is not finite while the
// others do not.
absl::Status CheckStageCan(const engine::OptimizerSpec& optimizer,
                           const engine::CompileOptions& options) {
  if (optimizer.clip_norm > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("clip_norm ", optimizer.clip_norm,
                     " takes the norm of all gradients, and a stage has only its own; expected 0"));
  }
  if (options.precision == engine::Precision::kF16) {
    return absl::InvalidArgumentError(
        "precision f16 has a loss scale that follows all gradients, and a stage has only its own; "
        "expected bf16, tf32 or f32");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PipelineLinks> ConnectNeighbours(const parallel::ConnectGroup& connect,
                                                int first_rank, int stages, int stage,
                                                const MakeStageLink& make) {
  // Both ends connect the lines of a link in this order, whichever of them it sends on.
  const auto link = [&](int before,
                        bool is_before) -> absl::StatusOr<std::unique_ptr<parallel::StageLink>> {
    parallel::Group activations = {.name = absl::StrCat("activations_", before),
                                   .members = {before, before + 1}};
    parallel::Group gradients = {.name = absl::StrCat("gradients_", before),
                                 .members = {before, before + 1}};
    TY_ASSIGN_OR_RETURN(auto down, connect(activations));
    TY_ASSIGN_OR_RETURN(auto up, connect(gradients));
    if (is_before) {
      return make({.host = {.receives = std::move(up), .sends = std::move(down), .peer = kAfter},
                   .receives = std::move(gradients),
                   .sends = std::move(activations)});
    }
    return make({.host = {.receives = std::move(down), .sends = std::move(up), .peer = kBefore},
                 .receives = std::move(activations),
                 .sends = std::move(gradients)});
  };
  PipelineLinks links;
  const int rank = first_rank + stage;
  if (stage > 0) {
    TY_ASSIGN_OR_RETURN(links.before, link(rank - 1, /*is_before=*/false));
  }
  if (stage + 1 < stages) {
    TY_ASSIGN_OR_RETURN(links.after, link(rank, /*is_before=*/true));
  }
  return links;
}

PipelineExecutable::PipelineExecutable(const engine::Graph& model, const PipelineOptions& pipeline,
                                       Clock& clock)
    : pipeline_(pipeline),
      row_elements_(engine::ElementCount(model.input_shape())),
      row_labels_(model.labels_per_row()),
      clock_(clock) {}

absl::StatusOr<std::unique_ptr<PipelineExecutable>> PipelineExecutable::Create(
    engine::Backend& backend, const engine::Graph& model, absl::Span<const std::string> cuts,
    const engine::OptimizerSpec& optimizer, engine::CompileOptions options,
    const PipelineOptions& pipeline, Clock& clock) {
  if (pipeline.stages > 1) TY_RETURN_IF_ERROR(CheckStageCan(optimizer, options));
  TY_ASSIGN_OR_RETURN(const std::vector<engine::Graph> stages, engine::SplitModel(model, cuts));
  if (static_cast<int>(stages.size()) != pipeline.stages) {
    return absl::InvalidArgumentError(absl::StrCat(
        cuts.size(), " cuts; expected ", pipeline.stages - 1, " of ", pipeline.stages, " stages"));
  }
  std::unique_ptr<PipelineExecutable> made(new PipelineExecutable(model, pipeline, clock));
  const int most = std::max(pipeline.microbatches, pipeline.step_batches);
  made->microbatch_rows_ =
      (pipeline.batch_rows + pipeline.microbatches - 1) / pipeline.microbatches;
  // A part of AccumulateAll is one microbatch, however many rows it has.
  if (pipeline.step_batches > 1) made->microbatch_rows_ = pipeline.batch_rows;
  options.max_rows = made->microbatch_rows_;
  engine::CompileOptions of_others = options;
  of_others.microbatch_slots = 1;
  of_others.owned = {};
  for (int s = 0; s < pipeline.stage; ++s) {
    TY_ASSIGN_OR_RETURN(const engine::CompilePlan before,
                        backend.Plan(stages[static_cast<size_t>(s)], optimizer, of_others));
    of_others.stage_input = options.stage_input = before.stage_output;
  }
  made->slots_ =
      std::max(1, parallel::PeakSlots(pipeline.schedule, pipeline.stages, pipeline.stage, most));
  options.microbatch_slots = made->slots_;
  TY_ASSIGN_OR_RETURN(made->stage_, backend.Compile(stages[static_cast<size_t>(pipeline.stage)],
                                                    optimizer, options));
  return made;
}

size_t PipelineExecutable::message_floats() const {
  const engine::PipelineStage::Boundary boundary =
      stage_->pipeline_stage()->boundary(0, microbatch_rows_);
  return std::max(boundary.inputs.size(), boundary.outputs.size());
}

std::vector<parallel::RowRange> PipelineExecutable::Microbatches(int64_t rows) const {
  const int count = static_cast<int>(std::min<int64_t>(rows, pipeline_.microbatches));
  std::vector<parallel::RowRange> microbatches;
  for (int i = 0; i < count; ++i) microbatches.push_back(parallel::ReplicaRows(rows, i, count));
  return microbatches;
}

std::vector<parallel::RowRange> PipelineExecutable::EvaluatedParts(int64_t rows) const {
  std::vector<parallel::RowRange> parts;
  for (int64_t first = 0; first < rows; first += microbatch_rows_) {
    parts.push_back({first, std::min(first + microbatch_rows_, rows)});
  }
  return parts;
}

// A part of AccumulateAll is one microbatch; otherwise the stage cuts its rows itself.
absl::Status PipelineExecutable::CompileTraining(int64_t rows) {
  std::set<int64_t> sizes;
  if (pipeline_.step_batches > 1) sizes.insert(std::min(rows, microbatch_rows_));
  for (const parallel::RowRange& range : Microbatches(rows)) sizes.insert(range.size());
  return stage_->CompileRows(std::vector<int64_t>(sizes.begin(), sizes.end()), {});
}

absl::Status PipelineExecutable::CompileEvaluation(int64_t rows) {
  std::set<int64_t> sizes;
  for (const parallel::RowRange& range : EvaluatedParts(rows)) sizes.insert(range.size());
  return stage_->CompileRows({}, std::vector<int64_t>(sizes.begin(), sizes.end()));
}

int64_t PipelineExecutable::RowsOf(const engine::Batch& batch) const {
  return static_cast<int64_t>(batch.labels.size()) / row_labels_;
}

engine::Batch PipelineExecutable::Slice(const engine::Batch& batch, int64_t first,
                                        int64_t rows) const {
  const auto part = [first, rows](auto values, int64_t of_row) {
    return values.subspan(static_cast<size_t>(first * of_row), static_cast<size_t>(rows * of_row));
  };
  engine::Batch slice = batch;
  slice.inputs = part(batch.inputs, row_elements_);
  slice.labels = part(batch.labels, row_labels_);
  slice.position.first_row += first;
  return slice;
}

absl::Status PipelineExecutable::Accumulate(const engine::Batch& batch, double weight,
                                            const ReadyCallback& on_ready) {
  const int64_t rows = RowsOf(batch);
  if (rows < 1 || rows > pipeline_.batch_rows) {
    return absl::InvalidArgumentError(
        absl::StrCat("a batch of ", rows, " rows; expected 1 to ", pipeline_.batch_rows));
  }
  std::vector<Microbatch> microbatches;
  for (const parallel::RowRange& range : Microbatches(rows)) {
    microbatches.push_back(
        {Slice(batch, range.begin, range.size()), range.size(),
         weight * static_cast<double>(range.size()) / static_cast<double>(rows)});
  }
  return Run(microbatches, on_ready, /*done=*/{});
}

absl::Status PipelineExecutable::AccumulateAll(absl::Span<const Part> parts,
                                               const ReadyCallback& on_ready,
                                               const PartDone& done) {
  if (static_cast<int64_t>(parts.size()) > pipeline_.step_batches) {
    return absl::InvalidArgumentError(absl::StrCat(parts.size(), " batches in a step; expected ",
                                                   pipeline_.step_batches, " at most"));
  }
  std::vector<Microbatch> microbatches;
  for (const Part& part : parts) {
    const int64_t rows = RowsOf(part.rows);
    if (rows < 1 || rows > microbatch_rows_) {
      return absl::InvalidArgumentError(
          absl::StrCat("a part of ", rows, " rows; expected 1 to ", microbatch_rows_));
    }
    microbatches.push_back({part.rows, rows, part.weight});
  }
  return Run(microbatches, on_ready, done);
}

absl::Status PipelineExecutable::Run(absl::Span<const Microbatch> microbatches,
                                     const ReadyCallback& on_ready, const PartDone& done) {
  const absl::Duration start = clock_.Uptime();
  TY_RETURN_IF_ERROR(stage_->pipeline_stage()->BeginStep());
  const int count = static_cast<int>(microbatches.size());
  for (const parallel::StageAction& action :
       parallel::ActionsOf(pipeline_.schedule, pipeline_.stages, pipeline_.stage, count)) {
    const auto number = static_cast<size_t>(action.microbatch);
    const int slot = action.microbatch % slots_;
    const Microbatch& microbatch = microbatches[number];
    if (action.kind == parallel::StageAction::Kind::kForward) {
      TY_RETURN_IF_ERROR(RunForward(microbatch, slot));
      continue;
    }
    const bool is_end = action.microbatch + 1 == count;
    TY_RETURN_IF_ERROR(RunBackward(microbatch, slot, is_end ? on_ready : ReadyCallback()));
    if (done) TY_RETURN_IF_ERROR(done(number));
  }
  // A device is still at work here, and what leaves over the links may take longer.
  times_.total += clock_.Uptime() - start;
  return absl::OkStatus();
}

absl::Status PipelineExecutable::RunForward(const Microbatch& microbatch, int slot) {
  engine::PipelineStage& stage = *stage_->pipeline_stage();
  const engine::PipelineStage::Boundary boundary = stage.boundary(slot, microbatch.rows);
  if (!is_first()) TY_RETURN_IF_ERROR(FromBefore(links_.before->Receive(slot, boundary.inputs)));
  // The microbatch that had this slot before has come back, so its output has left. Waiting for it
  // reports errors.
  if (!is_last()) TY_RETURN_IF_ERROR(FromAfter(links_.after->AwaitSent(slot)));
  const absl::Duration start = clock_.Uptime();
  TY_RETURN_IF_ERROR(stage.Forward(microbatch.batch, microbatch.rows, slot));
  AddComputed(start);
  return is_last() ? absl::OkStatus() : FromAfter(links_.after->Send(slot, boundary.outputs));
}

absl::Status PipelineExecutable::RunBackward(const Microbatch& microbatch, int slot,
                                             const ReadyCallback& on_ready) {
  engine::PipelineStage& stage = *stage_->pipeline_stage();
  const engine::PipelineStage::Boundary boundary = stage.boundary(slot, microbatch.rows);
  if (!is_last()) {
    TY_RETURN_IF_ERROR(FromAfter(links_.after->Receive(slot, boundary.output_gradients)));
  }
  if (!is_first()) TY_RETURN_IF_ERROR(FromBefore(links_.before->AwaitSent(slot)));
  const absl::Duration start = clock_.Uptime();
  TY_RETURN_IF_ERROR(
      stage.Backward(microbatch.batch, microbatch.rows, slot, microbatch.weight, on_ready));
  AddComputed(start);
  if (!is_last()) TY_RETURN_IF_ERROR(links_.after->Release(slot));
  if (is_first()) return absl::OkStatus();
  TY_RETURN_IF_ERROR(links_.before->Release(slot));
  return FromBefore(links_.before->Send(slot, boundary.input_gradients));
}

// The host does not see how long a device computes.
void PipelineExecutable::AddComputed(absl::Duration start) {
  if (memory_kind() == engine::MemoryKind::kHost) times_.computed += clock_.Uptime() - start;
}

absl::Status PipelineExecutable::FromBefore(const absl::Status& status) const {
  return Annotate(
      status, absl::StrCat("stage ", pipeline_.stage, " waiting for stage ", pipeline_.stage - 1));
}

absl::Status PipelineExecutable::FromAfter(const absl::Status& status) const {
  return Annotate(
      status, absl::StrCat("stage ", pipeline_.stage, " waiting for stage ", pipeline_.stage + 1));
}

// The next step may begin before the device has done this one. What leaves is waited for here, so
// that a neighbour who does not take it is named.
absl::Status PipelineExecutable::EndStep() {
  ended_.push_back(std::exchange(times_, {}));
  for (int slot = 0; slot < slots_; ++slot) {
    if (!is_first()) TY_RETURN_IF_ERROR(FromBefore(links_.before->AwaitSent(slot)));
    if (!is_last()) TY_RETURN_IF_ERROR(FromAfter(links_.after->AwaitSent(slot)));
  }
  return absl::OkStatus();
}

void PipelineExecutable::NoteTimes() {
  finished_times_ = ended_.front();
  ended_.pop_front();
  if (memory_kind() == engine::MemoryKind::kDevice) {
    const engine::DeviceTimes times = stage_->pipeline_stage()->device_times();
    finished_times_ = {times.total, times.computed};
  }
  if (!std::exchange(has_finished_a_step_, true)) return;
  ++measured_.count;
  measured_.times.total += finished_times_.total;
  measured_.times.computed += finished_times_.computed;
}

absl::Status PipelineExecutable::StartUpdate(double lr) {
  TY_RETURN_IF_ERROR(stage_->StartUpdate(lr));
  return EndStep();
}

absl::Status PipelineExecutable::EndUpdate() {
  TY_RETURN_IF_ERROR(stage_->range_update()->EndUpdate());
  return EndStep();
}

// The last stage has the loss, and any stage may have met a gradient that is not finite. So the
// metrics go from the last stage to the first one, each stage adding what it knows, and back again.
absl::StatusOr<engine::StepMetrics> PipelineExecutable::FinishUpdate() {
  TY_ASSIGN_OR_RETURN(const engine::StepMetrics mine, stage_->FinishUpdate());
  NoteTimes();
  const bool is_spoiled = std::isnan(mine.loss);
  float metrics[] = {static_cast<float>(mine.loss), static_cast<float>(mine.accuracy)};
  if (!is_last()) {
    TY_RETURN_IF_ERROR(FromAfter(links_.after->ReceiveNumbers(absl::MakeSpan(metrics))));
    if (is_spoiled) metrics[0] = std::numeric_limits<float>::quiet_NaN();
  }
  if (!is_first()) {
    TY_RETURN_IF_ERROR(FromBefore(links_.before->SendNumbers(metrics)));
    TY_RETURN_IF_ERROR(FromBefore(links_.before->ReceiveNumbers(absl::MakeSpan(metrics))));
  }
  if (!is_last()) TY_RETURN_IF_ERROR(FromAfter(links_.after->SendNumbers(metrics)));
  return engine::StepMetrics{metrics[0], metrics[1]};
}

absl::StatusOr<engine::Evaluation> PipelineExecutable::Evaluate(const engine::Batch& batch) {
  engine::PipelineStage& stage = *stage_->pipeline_stage();
  engine::Evaluation sum;
  for (const parallel::RowRange& range : EvaluatedParts(RowsOf(batch))) {
    const engine::PipelineStage::Boundary boundary = stage.boundary(0, range.size());
    if (!is_first()) TY_RETURN_IF_ERROR(FromBefore(links_.before->Receive(0, boundary.inputs)));
    if (!is_last()) TY_RETURN_IF_ERROR(FromAfter(links_.after->AwaitSent(0)));
    TY_ASSIGN_OR_RETURN(const engine::Evaluation part,
                        stage.EvaluateStage(Slice(batch, range.begin, range.size()), range.size()));
    sum.loss_sum += part.loss_sum;
    sum.correct += part.correct;
    sum.rows += part.rows;
    sum.top5 += part.top5;
    if (!is_first()) TY_RETURN_IF_ERROR(links_.before->Release(0));
    if (!is_last()) TY_RETURN_IF_ERROR(FromAfter(links_.after->Send(0, boundary.outputs)));
  }
  if (!is_last()) TY_RETURN_IF_ERROR(FromAfter(links_.after->AwaitSent(0)));
  return sum;
}

void PipelineExecutable::set_timeout(absl::Duration timeout) {
  for (parallel::StageLink* link : {links_.before.get(), links_.after.get()}) {
    if (link != nullptr) link->set_timeout(timeout);
  }
}

}  // namespace trainyard::trainer
