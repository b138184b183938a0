// What a TrainLoop does between two steps: replicas that move, evaluations, checkpoints.
#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "worker/trainer/evaluation.h"
#include "worker/trainer/hosting_plan.h"
#include "worker/trainer/train_loop.h"

namespace trainyard::trainer {
namespace {

using run_dir::Progress;

// Other ranks may load or evaluate longer than this one.
constexpr absl::Duration kEvaluationTimeout = absl::Minutes(10);

bool IsDue(const run_dir::IntervalSpec& every, int64_t step, int64_t steps_per_epoch) {
  if (every.epochs > 0) return step % (every.epochs * steps_per_epoch) == 0;
  return every.steps > 0 && step % every.steps == 0;
}

// By rank; of bitwise runs by replica, so that batches and sums are the same whoever hosts it.
EvaluationShares SharesOf(const Training& training) {
  const int host = static_cast<int>(training.host());
  // The last stage has the sums.
  const bool counts =
      !training.pipeline.has_value() || training.pipeline->stage + 1 == training.spec.stages.count;
  if (training.spec.train.is_bitwise) {
    return {.parts = training.identity.replicas,
            .mine = training.hosting[training.host()],
            .counts = counts};
  }
  return {.parts = static_cast<int>(training.hosting.size()),
          .mine = {host, host + 1},
          .counts = counts};
}

}  // namespace

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
  const bool is_evaluation_due =
      is_last || agreed_.evaluate || IsDue(training_.spec.evaluate_every, step_, per_epoch);
  const bool is_checkpoint_due =
      agreed_.checkpoint || IsDue(training_.spec.checkpoint_every, step_, per_epoch);
  TY_RETURN_IF_ERROR(MoveReplicas(is_checkpoint_due));
  // What is recorded of a step comes after all metrics up to it.
  if (is_evaluation_due || is_checkpoint_due || agreed_.stop) {
    TY_RETURN_IF_ERROR(FinishUpdates(0));
    TY_RETURN_IF_ERROR(AgreeOnLoss());
  }
  if (is_evaluation_due) TY_RETURN_IF_ERROR(EvaluateTestSplit());
  if (is_checkpoint_due && !is_last && !agreed_.stop) {
    // All ranks wait longer for rank 0 in the next step.
    AdjustTimeout(pace_.LimitAfterCheckpoint());
    TY_RETURN_IF_ERROR(reporter_.Promise(pace_.Silence(pace_.LimitAfterCheckpoint())));
    TY_RETURN_IF_ERROR(StartCheckpoint());
  }
  if (const auto ended = checkpoints_.Poll()) TY_RETURN_IF_ERROR(CheckpointEnded(*ended));
  return absl::OkStatus();
}

// Where the measured speeds say so. All ranks have seen the same ballots, and do the same.
absl::Status TrainLoop::MoveReplicas(bool is_boundary) {
  // While ranks wait for each other in batch norm, their times say nothing of their speeds. A
  // pipeline is as fast as its slowest stage, and no device of it hosts by itself.
  if (training_.exchange == nullptr || training_.statistics != nullptr ||
      training_.pipeline.has_value()) {
    return absl::OkStatus();
  }
  hosting_.Add(step_, ballots_);
  const std::optional<parallel::Hosting> hosting = hosting_.Decide(is_boundary);
  if (hosting.has_value()) {
    TY_RETURN_IF_ERROR(SetHosting(training_, *hosting));
    computed_rows_ = 0;
    StartHosting();
    LogInfo("moved replicas", {{"step", absl::StrCat(step_)}, {"because", hosting_.reason()}});
  } else if (reporter_.progress().hosting_reason != hosting_.reason()) {
    ReportHosting();
  }
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
  // The first batch; each tells of the next one.
  TY_RETURN_IF_ERROR(reporter_.Promise(pace_.Silence(pace_.CollectiveLimit())));
  SetTimeout(kEvaluationTimeout);
  if (training_.spec.optimizer.ema_decay > 0) TY_RETURN_IF_ERROR(GatherState());
  RecordedEvaluation record{.metrics = {},
                            .data_digest = dataset->digest(),
                            .backend = training_.backend,
                            .ranks = SharesOf(training_).parts,
                            .threads = training_.threads};
  TY_RETURN_IF_ERROR(EvaluateWeights(*dataset, "test.", record));
  if (training_.spec.optimizer.ema_decay > 0) {
    TY_RETURN_IF_ERROR(executable_.ExchangeAverages());
    TY_RETURN_IF_ERROR(EvaluateWeights(*dataset, "test.ema_", record));
    TY_RETURN_IF_ERROR(executable_.ExchangeAverages());
  }
  AdjustTimeout(pace_.CollectiveLimit());
  evaluated_step_ = step_;
  evaluation_ = std::move(record);
  evaluation_uptime_ = clock_.Uptime();
  TY_RETURN_IF_ERROR(reporter_.Promise(pace_.Silence(pace_.CollectiveLimit())));
  return reporter_.Flush();
}

absl::Status TrainLoop::EvaluateWeights(const data::Dataset& dataset, absl::string_view prefix,
                                        RecordedEvaluation& record) {
  TY_ASSIGN_OR_RETURN(
      const EvaluationResult result,
      Evaluate(dataset, training_.preparation, SharesOf(training_), training_.evaluation_rows,
               executable_, *training_.communicators.host, clock_,
               [this](std::optional<absl::Duration> slowest) {
                 return reporter_.Promise(slowest.has_value()
                                              ? StepPace::SilenceInEvaluation(*slowest)
                                              : pace_.Silence(kEvaluationTimeout));
               }));
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

// Where each rank updates a block of the parameters, it has only that block of what the optimizer
// keeps. A collective, once a step at most.
absl::Status TrainLoop::GatherState() {
  if (training_.exchange == nullptr || !training_.exchange->is_sharded()) return absl::OkStatus();
  if (gathered_step_ == step_) return absl::OkStatus();
  for (const absl::Span<float> values : executable_.range_update()->parameter_states()) {
    TY_RETURN_IF_ERROR(training_.exchange->GatherBlocks(values));
  }
  gathered_step_ = step_;
  return absl::OkStatus();
}

absl::Status TrainLoop::StartCheckpoint() {
  checkpoint_uptime_ = clock_.Uptime();
  const int64_t request = control_.AnswerCheckpoint();
  TY_RETURN_IF_ERROR(GatherState());
  if (training_.pipeline.has_value()) TY_RETURN_IF_ERROR(GatherStages(training_));
  if (training_.rank != 0) {
    reporter_.progress().checkpoint_request = request;
    return absl::OkStatus();
  }
  if (const auto ended = checkpoints_.Wait()) TY_RETURN_IF_ERROR(CheckpointEnded(*ended));
  // Metrics first: whoever resumes from this checkpoint writes only what comes after it.
  TY_RETURN_IF_ERROR(reporter_.Flush());
  TY_ASSIGN_OR_RETURN(
      StateSnapshot snapshot,
      TakeSnapshot(training_.pipeline.has_value() ? *training_.pipeline->whole : executable_, step_,
                   step_ / plan_.steps_per_epoch(), training_.identity));
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
