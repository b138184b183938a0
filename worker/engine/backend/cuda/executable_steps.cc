// Runs the steps of an executable: sends batches, runs or captures programs, and enqueues updates
// and waits for them.
#include <algorithm>
#include <array>
#include <limits>
#include <utility>
#include <vector>

#include "common/base/status_macros.h"
#include "worker/engine/backend/cuda/cuda_executable.h"
#include "worker/engine/graph/dropout.h"

namespace trainyard::engine::cuda {

absl::Status CudaExecutable::Send(const Batch& batch, absl::Span<const int64_t> group_begins,
                                  double weight, double lr) {
  const RandomPosition& position = batch.position;
  const std::array<uint32_t, 2> key = DropoutKey(position);
  const auto labels = static_cast<double>(std::max<size_t>(1, batch.labels.size()));
  StepControl control = {.weight = static_cast<float>(weight),
                         .gradient_scale = static_cast<float>(weight / labels),
                         .key = {key[0], key[1]},
                         .step = static_cast<uint32_t>(position.step),
                         .first_row = static_cast<uint32_t>(position.first_row),
                         .lr = static_cast<float>(lr)};
  const auto bytes_of = [](const auto& span) {
    return absl::MakeConstSpan(reinterpret_cast<const std::byte*>(span.data()),
                               span.size() * sizeof(*span.data()));
  };
  if (batch.stored.empty()) {
    return staging_.Send(
        {.inputs = bytes_of(batch.inputs), .labels = batch.labels, .group_begins = group_begins},
        control, waiter_, stream_.get());
  }
  control.stored = images_;
  control.stored.is_by_row = batch.stored_pixels.empty() ? 0 : 1;
  return staging_.Send({.inputs = bytes_of(batch.stored),
                        .pixels = batch.stored_pixels,
                        .labels = batch.labels,
                        .group_begins = group_begins},
                       control, waiter_, stream_.get());
}

absl::Status CudaExecutable::RefreshWeights() {
  if (!are_weights_stale_) return absl::OkStatus();
  weights_.Refresh(stream_.get());
  are_weights_stale_ = false;
  return LaunchStatus("packing weights");
}

Enqueue CudaExecutable::Training(bool adds) {
  return {.stream = stream_.get(),
          .tickets = tickets_.as<uint32_t>(),
          .control = staging_.device_control(),
          .group_begins = staging_.device_group_begins(),
          .side = HasBranches() ? &side_ : nullptr,
          .adds = adds,
          .groups = groups_.count(),
          .ranks = ranks_.is_wanted() ? &ranks_ : nullptr};
}

Enqueue CudaExecutable::Evaluating() const {
  return {.stream = stream_.get(),
          .tickets = tickets_.as<uint32_t>(),
          .control = staging_.device_control(),
          .counts_top5 = true};
}

absl::Status CudaExecutable::Run(const Recording& recording,
                                 const std::function<absl::Status()>& record) {
  Launch& launch = launches_[recording];
  if (!options_.captures || options_.inspect || !launch.has_run) {
    TY_RETURN_IF_ERROR(record());
    launch.has_run = true;
    return absl::OkStatus();
  }
  CapturedGraph& graph = launch.graphs[staging_.slot()];
  if (graph.executable == nullptr) {
    TY_ASSIGN_OR_RETURN(graph, Capture(stream_.get(), record));
  }
  return CudaStatus(cudaGraphLaunch(graph.executable.get(), stream_.get()), "launching a step");
}

absl::StatusOr<Program*> CudaExecutable::SendForTraining(const Batch& batch, double weight,
                                                         double lr) {
  TY_RETURN_IF_ERROR(Check(batch));
  const int64_t rows = RowsOf(model_, batch);
  TY_RETURN_IF_ERROR(CheckStatistics(training_, options_, batch.groups, rows));
  // Only batch norm looks at groups.
  groups_.Set(training_.statistics.empty() ? absl::Span<const int64_t>() : batch.groups);
  TY_ASSIGN_OR_RETURN(Program * program, Prepare(training_, training_programs_, rows));
  if (options_.microbatch_slots > 0) BindSlot(*program, 0);  // a half may have used another one
  TY_RETURN_IF_ERROR(RefreshWeights());
  TY_RETURN_IF_ERROR(Send(batch, groups_.begins(), weight, lr));
  return program;
}

CudaExecutable::Work CudaExecutable::SumsWork() {
  return std::exchange(has_sums_, true) ? Work::kAdd : Work::kAccumulate;
}

absl::Status CudaExecutable::RunCalls(Program& program, const Recording& calls, const Enqueue& how,
                                      const ReadyCallback& on_ready) {
  // Graphs end where a caller must know that sums are ready, and where statistics are summed over
  // the ranks. Without a caller only the latter counts, since calls make nothing behind the
  // gradients final.
  const std::vector<int64_t> never = {layout_.size};
  const std::vector<Program::Segment> segments =
      program.Segments(calls.begin, calls.end, on_ready ? ready_ends_ : never);
  // A recording of every few calls would save nothing, and a rank without rows makes only a few.
  const bool is_recorded = how.has_rows && (!on_ready || !ready_ends_.empty());
  int64_t ready = 0;
  for (const Program::Segment& segment : segments) {
    const auto record = [&] {
      if (options_.microbatch_slots > 0) BindSlot(program, calls.slot);
      return program.Run(segment.begin, segment.end, how);
    };
    Recording recording = calls;
    recording.begin = segment.begin;
    recording.end = segment.end;
    TY_RETURN_IF_ERROR(is_recorded && !segment.is_sum_of_ranks ? Run(recording, record) : record());
    if (on_ready && segment.ready > ready) on_ready(ready, segment.ready - ready);
    ready = std::max(ready, segment.ready);
  }
  // The range after the gradients holds the statistics and the loss.
  if (on_ready) on_ready(ready, layout_.size - ready);
  return absl::OkStatus();
}

void CudaExecutable::set_ready_ends(absl::Span<const int64_t> ends) {
  ready_ends_.assign(ends.begin(), ends.end());
}

absl::Status CudaExecutable::Accumulate(const Batch& batch, double weight,
                                        const ReadyCallback& on_ready) {
  TY_ASSIGN_OR_RETURN(Program * program, SendForTraining(batch, weight, 0));
  const int64_t rows = RowsOf(model_, batch);
  const Work work = SumsWork();
  const absl::Status ran = RunCalls(*program,
                                    {.work = work,
                                     .rows = rows,
                                     .groups = groups_.count(),
                                     .begin = 0,
                                     .end = program->calls().size()},
                                    Training(work == Work::kAdd), on_ready);
  TY_RETURN_IF_ERROR(staging_.Release(stream_.get()));
  TY_RETURN_IF_ERROR(ran);
  last_rows_ = rows;
  return absl::OkStatus();
}

// The sums over the ranks come in the order of the program, which is the same for any number of
// rows.
absl::Status CudaExecutable::TakePartInStatistics(const ReadyCallback& on_ready) {
  if (!ranks_.is_wanted()) return Executable::TakePartInStatistics(on_ready);
  TY_ASSIGN_OR_RETURN(Program * program, Prepare(training_, training_programs_, options_.max_rows));
  Enqueue how = Training(/*adds=*/true);
  how.has_rows = false;
  const absl::Status ran = RunCalls(
      *program, {.work = Work::kAdd, .rows = 0, .begin = 0, .end = program->calls().size()}, how,
      on_ready);
  TY_RETURN_IF_ERROR(staging_.Release(stream_.get()));
  return ran;
}

absl::Status CudaExecutable::SumStatisticsBy(std::shared_ptr<DeviceSum> sum) {
  if (!ranks_.is_wanted()) return Executable::SumStatisticsBy(std::move(sum));
  TY_RETURN_IF_ERROR(Wait());
  launches_.clear();  // what they pack and merge depends on who sums
  ranks_.SumBy(std::move(sum));
  return absl::OkStatus();
}

absl::Status CudaExecutable::EnqueueUpdate() {
  updater_.Enqueue(parameters_.as<float>(), statistics_.as<float>(), reduction_.as<float>(),
                   staging_.device_control(), Results(), weights_, stream_.get());
  return LaunchStatus("updating");
}

absl::Status CudaExecutable::MarkUpdate() {
  TY_RETURN_IF_ERROR(staging_.ReleaseAfterUpdate(stream_.get()));
  has_sums_ = false;
  stage_timer_.EndStep();
  const size_t slot = next_result_;
  next_result_ = (next_result_ + 1) % kUpdatesInFlight;
  in_flight_.push_back(slot);
  TY_RETURN_IF_ERROR(ranks_.EndStep(stream_.get()));
  return CudaStatus(cudaEventRecord(updated_[slot].get(), stream_.get()), "marking an update");
}

absl::Status CudaExecutable::StartUpdate(double lr) {
  if (in_flight_.size() == kUpdatesInFlight) {
    return absl::FailedPreconditionError("finish an update before starting another");
  }
  TY_RETURN_IF_ERROR(staging_.SendRate(static_cast<float>(lr), waiter_, stream_.get()));
  TY_RETURN_IF_ERROR(Run({.work = Work::kUpdate}, [this] { return EnqueueUpdate(); }));
  return MarkUpdate();
}

absl::Status CudaExecutable::StartStep(const Batch& batch, double lr) {
  // A step that was not captured before, or that adds to other sums, takes the general way: first
  // Accumulate, then the update.
  if (has_sums_ || are_weights_stale_ || in_flight_.size() == kUpdatesInFlight ||
      ranks_.is_wanted()) {
    return Executable::StartStep(batch, lr);
  }
  TY_ASSIGN_OR_RETURN(Program * program, SendForTraining(batch, 1, lr));
  return RunStep(*program, RowsOf(model_, batch));
}

absl::Status CudaExecutable::RunStep(const Program& program, int64_t rows) {
  const auto record = [&]() -> absl::Status {
    TY_RETURN_IF_ERROR(program.Run(0, program.calls().size(), Training(/*adds=*/false)));
    return EnqueueUpdate();
  };
  TY_RETURN_IF_ERROR(Run({.work = Work::kStep, .rows = rows, .groups = groups_.count()}, record));
  last_rows_ = rows;
  return MarkUpdate();
}

absl::Status CudaExecutable::RepeatStep() {
  if (last_rows_ == 0 || has_sums_ || are_weights_stale_ || ranks_.is_wanted()) {
    return absl::FailedPreconditionError("there is no step that could be repeated");
  }
  if (in_flight_.size() == kUpdatesInFlight) {
    return absl::FailedPreconditionError("finish an update before starting another");
  }
  return RunStep(*training_programs_.at(last_rows_), last_rows_);
}

absl::StatusOr<StepMetrics> CudaExecutable::FinishUpdate() {
  if (in_flight_.empty()) return absl::FailedPreconditionError("no update was started");
  const size_t slot = in_flight_.front();
  in_flight_.pop_front();
  TY_RETURN_IF_ERROR(ranks_.Await(updated_[slot].get()));
  TY_RETURN_IF_ERROR(waiter_.ForEvent(updated_[slot].get(), "waiting for an update"));
  TY_RETURN_IF_ERROR(ranks_.TakeRefusal(training_, in_flight_.size() + 1));
  TY_ASSIGN_OR_RETURN(device_times_, stage_timer_.TakeStep());
  const StepResult result = results_.as<StepResult>()[slot];
  StepMetrics metrics = {result.loss, result.accuracy};
  if (result.not_finite != 0 && result.skipped == 0) {
    metrics.loss = std::numeric_limits<double>::quiet_NaN();
  }
  return metrics;
}

absl::Status CudaExecutable::ExchangeAverages() {
  TY_RETURN_IF_ERROR(CheckHasAverages(table_));
  updater_.ExchangeAverages(parameters_.as<float>(), stream_.get());
  are_weights_stale_ = true;
  return LaunchStatus("exchanging averages");
}

absl::StatusOr<Evaluation> CudaExecutable::Evaluate(const Batch& batch) {
  TY_RETURN_IF_ERROR(Check(batch));
  const int64_t rows = RowsOf(model_, batch);
  TY_ASSIGN_OR_RETURN(Program * program, Prepare(evaluation_, evaluation_programs_, rows));
  TY_RETURN_IF_ERROR(RefreshWeights());
  last_rows_ = 0;
  TY_RETURN_IF_ERROR(Send(batch, {}, 0, 0));
  TY_RETURN_IF_ERROR(Run({.work = Work::kEvaluate, .rows = rows},
                         [&] { return program->Run(0, program->calls().size(), Evaluating()); }));
  TY_RETURN_IF_ERROR(staging_.Release(stream_.get()));
  return ReadEvaluation(static_cast<int64_t>(batch.labels.size()));
}

absl::StatusOr<Evaluation> CudaExecutable::ReadEvaluation(int64_t labels) const {
  TY_RETURN_IF_ERROR(Wait());
  LossTotals totals;
  TY_RETURN_IF_ERROR(
      CudaStatus(cudaMemcpy(&totals, totals_.data(), sizeof totals, cudaMemcpyDeviceToHost),
                 "reading an evaluation"));
  return Evaluation{totals.loss, static_cast<int64_t>(totals.correct), labels,
                    static_cast<int64_t>(totals.top5)};
}

absl::StatusOr<std::vector<CallTime>> CudaExecutable::Profile(const Batch& batch) {
  TY_ASSIGN_OR_RETURN(Program * program, SendForTraining(batch, 1, 0));
  auto times = program->Time(Training(has_sums_));
  has_sums_ = true;
  TY_RETURN_IF_ERROR(staging_.Release(stream_.get()));
  return times;
}

}  // namespace trainyard::engine::cuda
