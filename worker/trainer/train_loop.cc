#include "worker/trainer/train_loop.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "worker/trainer/evaluation.h"
#include "worker/trainer/memory.h"
#include "worker/trainer/model_setup.h"
#include "worker/trainer/row_form.h"

namespace trainyard::trainer {
namespace {

using run_dir::Progress;

// A collective of a step may take this many steps' time, and never less than the minimum: the
// machine may be busy.
constexpr double kTimeoutSteps = 20;
constexpr absl::Duration kTimeoutMin = absl::Seconds(30);
constexpr absl::Duration kTimeoutMax = absl::Minutes(30);
// Other ranks may load or evaluate longer than this one.
constexpr absl::Duration kEvaluationTimeout = absl::Minutes(10);

bool IsDue(const run_dir::IntervalSpec& every, int64_t step, int64_t steps_per_epoch) {
  if (every.epochs > 0) return step % (every.epochs * steps_per_epoch) == 0;
  return every.steps > 0 && step % every.steps == 0;
}

}  // namespace

TrainLoop::TrainLoop(Training& training, Reporter& reporter, const Signals& signals, Clock& clock)
    : training_(training),
      executable_(*training.executable),
      plan_(training.plan),
      reporter_(reporter),
      clock_(clock),
      control_(training.run_dir, signals),
      reduction_(*training.communicator),
      checkpoints_(training.run_dir.CheckpointsDir()),
      step_(training.first_step),
      evaluation_uptime_(clock.Uptime()),
      checkpoint_uptime_(evaluation_uptime_) {
  prefetcher_ = std::make_unique<data::Prefetcher>(
      *training.train_data, training.preparation,
      [&plan = plan_, first = step_](int64_t sequence) {
        const std::optional<int64_t> step = plan.StepWithRows(first, sequence);
        if (!step.has_value()) return data::PlannedBatch({});
        return data::PlannedBatch(plan.HostedSamples(*step), plan.EpochOf(*step));
      },
      kTrainPrefetchDepth, clock);
}

absl::StatusOr<TrainLoop::End> TrainLoop::Run() {
  while (step_ < plan_.total_steps() && !agreed_.stop) {
    TY_RETURN_IF_ERROR(Step());
    TY_RETURN_IF_ERROR(AfterStep());
  }
  const bool finished = step_ >= plan_.total_steps();
  // A run that resumes at its end has not evaluated yet.
  if (finished && evaluated_step_ != step_) TY_RETURN_IF_ERROR(EvaluateTestSplit());
  TY_RETURN_IF_ERROR(WriteLastCheckpoint());
  return finished ? End::kFinished : End::kStopped;
}

// One step: every rank computes the rows of the replicas that it hosts, the sums over all rows meet
// in the reduction arena of every rank, and every rank makes the same update.
absl::Status TrainLoop::Step() {
  const absl::Duration start = clock_.Uptime();
  const double lr = engine::LearningRate(training_.schedule, step_);
  Votes votes = CastVotes();

  TY_RETURN_IF_ERROR(AccumulateHostedReplicas(votes));
  TY_RETURN_IF_ERROR(Annotate(reduction_.AllReduce(executable_.reduction(), votes),
                              absl::StrCat("step ", step_ + 1)));
  TY_ASSIGN_OR_RETURN(const engine::StepMetrics metrics, executable_.Update(lr));

  ++step_;
  agreed_ = votes;
  TY_RETURN_IF_ERROR(ReportStep(metrics, lr));
  AdjustTimeout(clock_.Uptime() - start);
  return absl::OkStatus();
}

// Forward and backward of this rank's rows, each replica weighted by its share of the global batch.
// Where rows do not depend on each other, the hosted replicas are one batch: the weighted sum is
// the same.
absl::Status TrainLoop::AccumulateHostedReplicas(Votes& votes) {
  const parallel::RowRange hosted = plan_.HostedRows(step_);
  if (hosted.size() == 0) return absl::OkStatus();  // a small last batch; the reduction stays zero
  const data::PreparedBatch* batch = prefetcher_->Next();
  if (batch == nullptr) {
    TY_RETURN_IF_ERROR(prefetcher_->status());
    return absl::InternalError("the prefetcher ended before the training");
  }
  votes.skipped = batch->skipped;

  const auto total_rows = static_cast<double>(plan_.Rows(step_));
  const std::vector<parallel::RowRange> slices =
      training_.couples_rows ? plan_.ReplicaSlices(step_) : std::vector{hosted};
  for (const parallel::RowRange& slice : slices) {
    // max_rows is less than a slice where the spec asks for microbatches.
    for (int64_t first = slice.begin; first < slice.end; first += training_.max_rows) {
      const int64_t rows = std::min(training_.max_rows, slice.end - first);
      const engine::Batch part =
          BatchOfRows(*batch, first - hosted.begin, rows, {training_.identity.seed, step_, first});
      TY_RETURN_IF_ERROR(
          executable_.Accumulate(part, static_cast<double>(rows) / total_rows, /*on_ready=*/{}));
    }
  }
  return absl::OkStatus();
}

Votes TrainLoop::CastVotes() {
  const absl::Duration now = clock_.Uptime();
  const auto has_passed = [&](const run_dir::IntervalSpec& every, absl::Duration since) {
    // By the clock of rank 0 alone.
    return training_.rank == 0 && every.time > absl::ZeroDuration() && now - since >= every.time;
  };
  return {.stop = control_.stop_requested(),
          .checkpoint = control_.CheckpointRequested() ||
                        has_passed(training_.spec.checkpoint_every, checkpoint_uptime_),
          .evaluate = has_passed(training_.spec.evaluate_every, evaluation_uptime_)};
}

absl::Status TrainLoop::ReportStep(const engine::StepMetrics& metrics, double lr) {
  metrics_["train.loss"] = metrics.loss;
  metrics_["train.accuracy"] = metrics.accuracy;
  // Before the step's own metrics, which may be flushed with it.
  if (agreed_.skipped > 0) {
    reporter_.AddMetric(step_, "train.skipped", static_cast<double>(agreed_.skipped));
  }
  TY_RETURN_IF_ERROR(reporter_.StepDone({.step = step_,
                                         .epoch = plan_.EpochOf(step_ - 1),
                                         .rows = plan_.Rows(step_ - 1),
                                         .loss = metrics.loss,
                                         .accuracy = metrics.accuracy,
                                         .lr = lr,
                                         .data_wait = prefetcher_->waited()}));
  if (std::isfinite(metrics.loss)) return absl::OkStatus();
  const auto rule = MakeOptimizer(training_.spec.optimizer).rule;
  return error::LossNotFinite(metrics.loss, step_,
                              absl::StrCat("optimizer.", engine::RuleName(rule), ".lr"), lr);
}

void TrainLoop::AdjustTimeout(absl::Duration step_time) {
  constexpr double kWeight = 0.1;
  mean_step_time_ = mean_step_time_ == absl::ZeroDuration()
                        ? step_time
                        : mean_step_time_ + kWeight * (step_time - mean_step_time_);
  training_.communicator->set_timeout(
      std::clamp(kTimeoutSteps * mean_step_time_, kTimeoutMin, kTimeoutMax));
}

absl::Status TrainLoop::AfterStep() {
  const int64_t per_epoch = plan_.steps_per_epoch();
  const bool is_last = step_ == plan_.total_steps();
  if (test_data_ == nullptr && !loading_test_data_.valid()) {
    // After the first step, which it would delay.
    loading_test_data_ = std::async(std::launch::async, [this] {
      return data::OpenDataset(training_.spec.data.dataset, data::Split::kTest,
                               training_.dataset_options);
    });
  }
  // A test split that is missing is told now, not at the end of the epoch.
  if (loading_test_data_.valid() &&
      loading_test_data_.wait_for(std::chrono::seconds(0)) == std::future_status::ready) {
    TY_RETURN_IF_ERROR(TestData().status());
  }
  if (is_last || agreed_.evaluate || IsDue(training_.spec.evaluate_every, step_, per_epoch)) {
    TY_RETURN_IF_ERROR(EvaluateTestSplit());
  }
  const bool is_checkpoint_due =
      agreed_.checkpoint || IsDue(training_.spec.checkpoint_every, step_, per_epoch);
  if (is_checkpoint_due && !is_last && !agreed_.stop) TY_RETURN_IF_ERROR(StartCheckpoint());
  if (const auto ended = checkpoints_.Poll()) TY_RETURN_IF_ERROR(CheckpointEnded(*ended));
  return absl::OkStatus();
}

absl::StatusOr<const data::Dataset*> TrainLoop::TestData() {
  if (test_data_ == nullptr) {
    if (loading_test_data_.valid()) {
      TY_ASSIGN_OR_RETURN(test_data_, loading_test_data_.get());
    } else {
      TY_ASSIGN_OR_RETURN(test_data_,
                          data::OpenDataset(training_.spec.data.dataset, data::Split::kTest,
                                            training_.dataset_options));
    }
  }
  return test_data_.get();
}

absl::Status TrainLoop::EvaluateTestSplit() {
  TY_RETURN_IF_ERROR(reporter_.EnterState(Progress::State::kEvaluating));
  TY_ASSIGN_OR_RETURN(const data::Dataset* dataset, TestData());
  training_.communicator->set_timeout(kEvaluationTimeout);
  RecordedEvaluation record{.metrics = {},
                            .data_digest = dataset->digest(),
                            .backend = training_.backend,
                            .ranks = training_.communicator->world_size(),
                            .threads = training_.threads};
  TY_RETURN_IF_ERROR(EvaluateWeights(*dataset, "test.", record));
  if (training_.spec.optimizer.ema_decay > 0) {
    TY_RETURN_IF_ERROR(executable_.ExchangeAverages());
    TY_RETURN_IF_ERROR(EvaluateWeights(*dataset, "test.ema_", record));
    TY_RETURN_IF_ERROR(executable_.ExchangeAverages());
  }
  AdjustTimeout(mean_step_time_);
  evaluated_step_ = step_;
  evaluation_ = std::move(record);
  evaluation_uptime_ = clock_.Uptime();
  return reporter_.Flush();
}

absl::Status TrainLoop::EvaluateWeights(const data::Dataset& dataset, absl::string_view prefix,
                                        RecordedEvaluation& record) {
  TY_ASSIGN_OR_RETURN(const EvaluationResult result,
                      Evaluate(dataset, training_.preparation, training_.max_rows, executable_,
                               *training_.communicator, clock_));
  record.samples = result.samples;
  record.skipped = result.skipped;
  for (const auto& [name, value] : EvaluationMetrics(result, prefix, training_.spec.model)) {
    metrics_[name] = record.metrics[name] = value;
    if (step_ > training_.first_step) reporter_.AddMetric(step_, name, value);
  }
  if (step_ > training_.first_step && result.skipped > 0) {
    reporter_.AddMetric(step_, absl::StrCat(prefix, "skipped"),
                        static_cast<double>(result.skipped));
  }
  if (training_.rank == 0) {
    LogInfo("evaluated", {{"step", absl::StrCat(step_)},
                          {absl::StrCat(prefix, "loss"), absl::StrCat(result.loss)},
                          {absl::StrCat(prefix, "accuracy"), absl::StrCat(result.accuracy)}});
  }
  return absl::OkStatus();
}

absl::Status TrainLoop::StartCheckpoint() {
  checkpoint_uptime_ = clock_.Uptime();
  const int64_t request = control_.AnswerCheckpoint();
  if (training_.rank != 0) {
    reporter_.progress().checkpoint_request = request;
    return absl::OkStatus();
  }
  if (const auto ended = checkpoints_.Wait()) TY_RETURN_IF_ERROR(CheckpointEnded(*ended));
  // Metrics first: whoever resumes from this checkpoint writes only what comes after it.
  TY_RETURN_IF_ERROR(reporter_.Flush());
  TY_ASSIGN_OR_RETURN(
      StateSnapshot snapshot,
      TakeSnapshot(executable_, step_, step_ / plan_.steps_per_epoch(), training_.identity));
  if (evaluated_step_ == step_) snapshot.evaluation = evaluation_;
  checkpoints_.Start(std::move(snapshot), request);
  return absl::OkStatus();
}

// A checkpoint that fails in the middle of the training is no reason to end it: the last good one
// is kept, and the next may succeed.
absl::Status TrainLoop::CheckpointEnded(const CheckpointWriter::Finished& finished) {
  if (!finished.status.ok()) {
    LogWarning(
        "a checkpoint could not be written",
        {{"step", absl::StrCat(finished.step)}, {"error", std::string(finished.status.message())}});
    return absl::OkStatus();
  }
  LogInfo("wrote a checkpoint", {{"step", absl::StrCat(finished.step)}});
  checkpoint_step_ = finished.step;
  reporter_.progress().last_checkpoint_step = finished.step;
  reporter_.progress().checkpoint_request = finished.request;
  return reporter_.EnterState(reporter_.progress().state);
}

absl::Status TrainLoop::WriteLastCheckpoint() {
  if (const auto ended = checkpoints_.Wait()) TY_RETURN_IF_ERROR(CheckpointEnded(*ended));
  if (checkpoint_step_ == step_) return absl::OkStatus();
  TY_RETURN_IF_ERROR(reporter_.EnterState(Progress::State::kCheckpointing));
  TY_RETURN_IF_ERROR(StartCheckpoint());
  const auto ended = checkpoints_.Wait();
  if (!ended.has_value()) return absl::OkStatus();  // not rank 0
  TY_RETURN_IF_ERROR(ended->status);
  return CheckpointEnded(*ended);
}

}  // namespace trainyard::trainer
