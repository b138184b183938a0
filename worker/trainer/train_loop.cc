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
      reduction_(*training.communicators.host, training.communicators.device.get()),
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
// in the reduction arena of every rank, and every rank makes the same update. Where a device works
// by itself, the update is on its way when this returns, and the one before is finished.
absl::Status TrainLoop::Step() {
  const absl::Duration start = clock_.Uptime();
  const double lr = engine::LearningRate(training_.schedule, step_);
  Votes votes = CastVotes();

  TY_ASSIGN_OR_RETURN(const std::vector<Part> parts, NextParts(votes));
  if (training_.communicators.host->world_size() == 1 && parts.size() == 1) {
    TY_RETURN_IF_ERROR(executable_.StartStep(parts[0].rows, lr));
  } else {
    TY_RETURN_IF_ERROR(SumOverRanks(parts, votes));
    TY_RETURN_IF_ERROR(executable_.StartUpdate(lr));
  }

  ++step_;
  agreed_ = votes;
  unfinished_.push_back({.step = step_, .lr = lr, .skipped = votes.skipped});
  const auto in_flight = static_cast<size_t>(executable_.max_updates_in_flight());
  TY_RETURN_IF_ERROR(FinishUpdates(in_flight - 1));
  pace_.Add(clock_.Uptime() - start);
  AdjustTimeout(pace_.CollectiveLimit());
  return absl::OkStatus();
}

// This rank's rows, each replica weighted by its share of the global batch. Where rows do not
// depend on each other, the hosted replicas are one batch: the weighted sum is the same.
absl::StatusOr<std::vector<TrainLoop::Part>> TrainLoop::NextParts(Votes& votes) {
  std::vector<Part> parts;
  const parallel::RowRange hosted = plan_.HostedRows(step_);
  if (hosted.size() == 0) return parts;  // a small last batch; the reduction stays zero
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
      parts.push_back({.rows = BatchOfRows(*batch, first - hosted.begin, rows,
                                           {training_.identity.seed, step_, first}),
                       .weight = static_cast<double>(rows) / total_rows});
    }
  }
  return parts;
}

// Forward and backward of the parts, and the sum over the ranks.
absl::Status TrainLoop::SumOverRanks(const std::vector<Part>& parts, Votes& votes) {
  for (const Part& part : parts) {
    TY_RETURN_IF_ERROR(executable_.Accumulate(part.rows, part.weight, /*on_ready=*/{}));
  }
  if (training_.communicators.host->world_size() == 1) return absl::OkStatus();
  TY_RETURN_IF_ERROR(executable_.Synchronize());
  return Annotate(reduction_.AllReduce(executable_.reduction(), votes),
                  absl::StrCat("step ", step_ + 1));
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

absl::Status TrainLoop::FinishUpdates(size_t left) {
  while (unfinished_.size() > left) {
    TY_ASSIGN_OR_RETURN(const engine::StepMetrics metrics, executable_.FinishUpdate());
    const Unfinished update = unfinished_.front();
    unfinished_.pop_front();
    TY_RETURN_IF_ERROR(ReportStep(update, metrics));
  }
  return absl::OkStatus();
}

absl::Status TrainLoop::ReportStep(const Unfinished& update, const engine::StepMetrics& metrics) {
  metrics_["train.loss"] = metrics.loss;
  metrics_["train.accuracy"] = metrics.accuracy;
  // Before the step's own metrics, which may be flushed with it.
  if (update.skipped > 0) {
    reporter_.AddMetric(update.step, "train.skipped", static_cast<double>(update.skipped));
  }
  TY_RETURN_IF_ERROR(reporter_.StepDone({.step = update.step,
                                         .epoch = plan_.EpochOf(update.step - 1),
                                         .rows = plan_.Rows(update.step - 1),
                                         .loss = metrics.loss,
                                         .accuracy = metrics.accuracy,
                                         .lr = update.lr,
                                         .data_wait = prefetcher_->waited()}));
  if (std::isfinite(metrics.loss)) return absl::OkStatus();
  const auto rule = MakeOptimizer(training_.spec.optimizer).rule;
  return error::LossNotFinite(metrics.loss, update.step,
                              absl::StrCat("optimizer.", engine::RuleName(rule), ".lr"), update.lr);
}

// What a step may take from now on, where others wait for it.
void TrainLoop::AdjustTimeout(absl::Duration limit) {
  SetTimeout(limit);
  reporter_.set_running_silence(pace_.Silence(limit));
}

void TrainLoop::SetTimeout(absl::Duration timeout) {
  training_.communicators.host->set_timeout(timeout);
  // A staged communicator hands it on to the host's.
  if (training_.communicators.device != nullptr) {
    training_.communicators.device->set_timeout(timeout);
  }
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
  const bool is_evaluation_due =
      is_last || agreed_.evaluate || IsDue(training_.spec.evaluate_every, step_, per_epoch);
  const bool is_checkpoint_due =
      agreed_.checkpoint || IsDue(training_.spec.checkpoint_every, step_, per_epoch);
  // What is recorded of a step comes after all metrics up to it.
  if (is_evaluation_due || is_checkpoint_due || agreed_.stop) TY_RETURN_IF_ERROR(FinishUpdates(0));
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
  RecordedEvaluation record{.metrics = {},
                            .data_digest = dataset->digest(),
                            .backend = training_.backend,
                            .ranks = training_.communicators.host->world_size(),
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
      Evaluate(
          dataset, training_.preparation, training_.max_rows, executable_,
          *training_.communicators.host, clock_, [this](std::optional<absl::Duration> slowest) {
            return reporter_.Promise(slowest.has_value() ? StepPace::SilenceInEvaluation(*slowest)
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
