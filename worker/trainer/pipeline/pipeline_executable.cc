// Executes the actions of the schedule one by one. Receiving blocks; sending continues in the
// background.
#include "worker/trainer/pipeline/pipeline_executable.h"

#include <algorithm>
#include <cmath>
#include <limits>
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

}  // namespace

absl::StatusOr<PipelineLinks> ConnectNeighbours(const parallel::ConnectGroup& connect,
                                                int first_rank, int stages, int stage) {
  PipelineLinks links;
  const int rank = first_rank + stage;
  const auto line = [&connect](absl::string_view name, int before) {
    return connect({.name = absl::StrCat(name, "_", before), .members = {before, before + 1}});
  };
  if (stage > 0) {
    TY_ASSIGN_OR_RETURN(links.activations_in, line("activations", rank - 1));
    TY_ASSIGN_OR_RETURN(links.gradients_out, line("gradients", rank - 1));
  }
  if (stage + 1 < stages) {
    TY_ASSIGN_OR_RETURN(links.activations_out, line("activations", rank));
    TY_ASSIGN_OR_RETURN(links.gradients_in, line("gradients", rank));
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
  if (pipeline.stages > 1 && optimizer.clip_norm > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("clip_norm ", optimizer.clip_norm,
                     " takes the norm of all gradients, and a stage has only its own; expected 0"));
  }
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
  for (int s = 0; s < pipeline.stage; ++s) {
    options.microbatch_slots = 1;
    TY_ASSIGN_OR_RETURN(const engine::CompilePlan before,
                        backend.Plan(stages[static_cast<size_t>(s)], optimizer, options));
    options.stage_input = before.stage_output;
  }
  made->slots_ =
      std::max(1, parallel::PeakSlots(pipeline.schedule, pipeline.stages, pipeline.stage, most));
  options.microbatch_slots = made->slots_;
  TY_ASSIGN_OR_RETURN(made->stage_, backend.Compile(stages[static_cast<size_t>(pipeline.stage)],
                                                    optimizer, options));
  made->outputs_sent_.assign(static_cast<size_t>(made->slots_), 0);
  made->gradients_sent_.assign(static_cast<size_t>(made->slots_), 0);
  return made;
}

void PipelineExecutable::Connect(PipelineLinks links) {
  links_ = std::move(links);
  if (!is_last()) activations_line_ = std::make_unique<SendLine>(*links_.activations_out, kAfter);
  if (!is_first()) gradients_line_ = std::make_unique<SendLine>(*links_.gradients_out, kBefore);
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
  const int count = static_cast<int>(std::min<int64_t>(rows, pipeline_.microbatches));
  std::vector<Microbatch> microbatches;
  for (int i = 0; i < count; ++i) {
    const parallel::RowRange range = parallel::ReplicaRows(rows, i, count);
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
  const int count = static_cast<int>(microbatches.size());
  for (const parallel::StageAction& action :
       parallel::ActionsOf(pipeline_.schedule, pipeline_.stages, pipeline_.stage, count)) {
    const auto number = static_cast<size_t>(action.microbatch);
    const size_t slot = number % static_cast<size_t>(slots_);
    const Microbatch& microbatch = microbatches[number];
    if (action.kind == parallel::StageAction::Kind::kForward) {
      TY_RETURN_IF_ERROR(RunForward(microbatch, slot));
      continue;
    }
    const bool is_end = action.microbatch + 1 == count;
    TY_RETURN_IF_ERROR(RunBackward(microbatch, slot, is_end ? on_ready : ReadyCallback()));
    if (done) TY_RETURN_IF_ERROR(done(number));
  }
  times_.total += clock_.Uptime() - start;
  return absl::OkStatus();
}

absl::Status PipelineExecutable::RunForward(const Microbatch& microbatch, size_t slot) {
  const engine::PipelineStage::Boundary boundary =
      stage_->pipeline_stage()->boundary(static_cast<int>(slot));
  if (!is_first()) {
    TY_RETURN_IF_ERROR(Receive(*links_.activations_in, boundary.inputs, microbatch.rows, kBefore));
  }
  // The microbatch that had this slot before has come back, so its output has left. Waiting for it
  // reports errors.
  if (!is_last()) TY_RETURN_IF_ERROR(activations_line_->WaitFor(outputs_sent_[slot]));
  const absl::Duration start = clock_.Uptime();
  TY_RETURN_IF_ERROR(
      stage_->pipeline_stage()->Forward(microbatch.batch, microbatch.rows, static_cast<int>(slot)));
  times_.computed += clock_.Uptime() - start;
  if (is_last()) return absl::OkStatus();
  const size_t row = boundary.outputs.size() / static_cast<size_t>(microbatch_rows_);
  outputs_sent_[slot] =
      activations_line_->Send(boundary.outputs.first(row * static_cast<size_t>(microbatch.rows)));
  return absl::OkStatus();
}

absl::Status PipelineExecutable::RunBackward(const Microbatch& microbatch, size_t slot,
                                             const ReadyCallback& on_ready) {
  const engine::PipelineStage::Boundary boundary =
      stage_->pipeline_stage()->boundary(static_cast<int>(slot));
  if (!is_last()) {
    TY_RETURN_IF_ERROR(
        Receive(*links_.gradients_in, boundary.output_gradients, microbatch.rows, kAfter));
  }
  if (!is_first()) TY_RETURN_IF_ERROR(gradients_line_->WaitFor(gradients_sent_[slot]));
  const absl::Duration start = clock_.Uptime();
  TY_RETURN_IF_ERROR(stage_->pipeline_stage()->Backward(
      microbatch.batch, microbatch.rows, static_cast<int>(slot), microbatch.weight, on_ready));
  times_.computed += clock_.Uptime() - start;
  if (is_first()) return absl::OkStatus();
  const size_t row = boundary.input_gradients.size() / static_cast<size_t>(microbatch_rows_);
  gradients_sent_[slot] = gradients_line_->Send(
      boundary.input_gradients.first(row * static_cast<size_t>(microbatch.rows)));
  return absl::OkStatus();
}

// `values` has room for the largest microbatch.
absl::Status PipelineExecutable::Receive(parallel::Communicator& line, absl::Span<float> values,
                                         int64_t rows, int peer) {
  const size_t row = values.size() / static_cast<size_t>(microbatch_rows_);
  return Annotate(line.Receive(values.first(row * static_cast<size_t>(rows)), peer),
                  absl::StrCat("stage ", pipeline_.stage, " waiting for stage ",
                               pipeline_.stage + (peer == kBefore ? -1 : 1)));
}

void PipelineExecutable::EndStep() {
  finished_times_ = std::exchange(times_, {});
}

absl::Status PipelineExecutable::StartUpdate(double lr) {
  EndStep();
  return stage_->StartUpdate(lr);
}

absl::Status PipelineExecutable::EndUpdate() {
  EndStep();
  return stage_->range_update()->EndUpdate();
}

// The last stage has the loss, and any stage may have met a gradient that is not finite. So the
// metrics go from the last stage to the first one, each stage adding what it knows, and back again.
absl::StatusOr<engine::StepMetrics> PipelineExecutable::FinishUpdate() {
  TY_ASSIGN_OR_RETURN(const engine::StepMetrics mine, stage_->FinishUpdate());
  const bool is_spoiled = std::isnan(mine.loss);
  metrics_[0] = static_cast<float>(mine.loss);
  metrics_[1] = static_cast<float>(mine.accuracy);
  if (!is_last()) {
    TY_RETURN_IF_ERROR(links_.gradients_in->Receive(absl::MakeSpan(metrics_), kAfter));
    if (is_spoiled) metrics_[0] = std::numeric_limits<float>::quiet_NaN();
  }
  if (!is_first()) {
    gradients_line_->Send(metrics_);
    TY_RETURN_IF_ERROR(gradients_line_->WaitForAll());
    TY_RETURN_IF_ERROR(links_.activations_in->Receive(absl::MakeSpan(metrics_), kBefore));
  }
  if (!is_last()) {
    activations_line_->Send(metrics_);
    TY_RETURN_IF_ERROR(activations_line_->WaitForAll());
  }
  return engine::StepMetrics{metrics_[0], metrics_[1]};
}

absl::StatusOr<engine::Evaluation> PipelineExecutable::Evaluate(const engine::Batch& batch) {
  const engine::PipelineStage::Boundary boundary = stage_->pipeline_stage()->boundary(0);
  engine::Evaluation sum;
  const int64_t all = RowsOf(batch);
  for (int64_t first = 0; first < all; first += microbatch_rows_) {
    const int64_t rows = std::min(microbatch_rows_, all - first);
    if (!is_first()) {
      TY_RETURN_IF_ERROR(Receive(*links_.activations_in, boundary.inputs, rows, kBefore));
    }
    if (!is_last()) TY_RETURN_IF_ERROR(activations_line_->WaitForAll());
    TY_ASSIGN_OR_RETURN(const engine::Evaluation part,
                        stage_->pipeline_stage()->EvaluateStage(Slice(batch, first, rows), rows));
    sum.loss_sum += part.loss_sum;
    sum.correct += part.correct;
    sum.rows += part.rows;
    sum.top5 += part.top5;
    if (is_last()) continue;
    const size_t row = boundary.outputs.size() / static_cast<size_t>(microbatch_rows_);
    activations_line_->Send(boundary.outputs.first(row * static_cast<size_t>(rows)));
  }
  if (!is_last()) TY_RETURN_IF_ERROR(activations_line_->WaitForAll());
  return sum;
}

void PipelineExecutable::set_timeout(absl::Duration timeout) {
  for (parallel::Communicator* line : {links_.activations_in.get(), links_.gradients_out.get(),
                                       links_.activations_out.get(), links_.gradients_in.get()}) {
    if (line != nullptr) line->set_timeout(timeout);
  }
}

}  // namespace trainyard::trainer
