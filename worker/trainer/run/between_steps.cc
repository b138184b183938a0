// The part of TrainLoop that runs between two steps: it moves replicas, evaluates, and writes
// checkpoints.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/full_disk.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/spec/interval.h"
#include "worker/trainer/run/evaluation.h"
#include "worker/trainer/run/train_loop.h"

namespace trainyard::trainer {
namespace {

using run_dir::Progress;

// Other ranks may load, compile or evaluate longer than this one.
constexpr absl::Duration kEvaluationTimeout = absl::Minutes(10);
// A checkpoint that found the disk full is tried again after this long. Each attempt copies the
// state and fills the disk for a moment.
constexpr absl::Duration kCheckpointRetry = absl::Seconds(30);
// The last checkpoint is tried more often, since the devices wait for it, and not for ever.
constexpr absl::Duration kLastCheckpointRetry = absl::Seconds(5);
constexpr absl::Duration kLastCheckpointPatience = absl::Minutes(10);

// Ranks divide the test split; in a bitwise run the replicas do, so that batches and sums are the
// same, whichever ranks host them. The stages of a pipeline evaluate the same part together, and
// the last one has its sums.
EvaluationShares SharesOf(const RunSetup& setup, const parallel::Hosting& hosting) {
  const int host = setup.place.pipeline;
  const bool counts = setup.place.is_last_stage();
  if (setup.is_bitwise) {
    return {.parts = setup.replicas, .mine = hosting[static_cast<size_t>(host)], .counts = counts};
  }
  return {.parts = static_cast<int>(hosting.size()), .mine = {host, host + 1}, .counts = counts};
}

}  // namespace

absl::Status TrainLoop::AfterStep() {
  const bool is_last = step_ == run_.share.steps.total_steps();
  // The test split is loaded after the first step, which it would delay. If it is missing, that is
  // reported now, and not at the end of the epoch.
  TY_RETURN_IF_ERROR(test_split_.Poll());
  const bool is_evaluation_due =
      is_last || agreed_.evaluate || IsDueAt(run_.setup.spec.evaluate().every(), step_);
  bool is_checkpoint_due =
      agreed_.checkpoint || IsDueAt(run_.setup.spec.checkpoint().every(), step_);
  // The records of a step come after all metrics up to it.
  if (is_evaluation_due || is_checkpoint_due || agreed_.stop) {
    TY_RETURN_IF_ERROR(FinishUpdates(0));
    TY_RETURN_IF_ERROR(WithStep(AgreeOnLoss()));
    // By now this step's own ballots were heard.
    is_checkpoint_due |= agreed_.checkpoint;
  }
  TY_RETURN_IF_ERROR(MoveReplicas(is_checkpoint_due));
  if (is_evaluation_due) TY_RETURN_IF_ERROR(WithStep(EvaluateTestSplit()));
  if (is_checkpoint_due && !is_last && !agreed_.stop) {
    // All ranks wait longer for rank 0 in the next step.
    TY_RETURN_IF_ERROR(AllowForNextStep(pace_.LimitAfterCheckpoint()));
    TY_RETURN_IF_ERROR(WithStep(StartCheckpoint()));
  }
  if (const auto ended = checkpoints_.Poll()) TY_RETURN_IF_ERROR(CheckpointEnded(*ended));
  return absl::OkStatus();
}

// Moves replicas if the measured speeds suggest it. All ranks have seen the same ballots, and do
// the same.
absl::Status TrainLoop::MoveReplicas(bool is_boundary) {
  if (!run_.hosting.may_change) return absl::OkStatus();
  hosting_.Add(ballots_);
  const std::optional<parallel::Hosting> hosting = hosting_.Decide(is_boundary);
  if (hosting.has_value()) {
    TY_RETURN_IF_ERROR(FinishUpdates(0));
    absl::StatusOr<HostedShare> share =
        TakeShare(run_.setup, *hosting, run_.share.steps, executable_, exchange_);
    TY_RETURN_IF_ERROR(WithStep(share.status()));
    run_.share = *std::move(share);
    run_.hosting.ranges = *hosting;
    TY_RETURN_IF_ERROR(CompileNewRows());
    // The ballots so far tell of the hosting before.
    computed_.rows = 0;
    ballots_.assign(ballots_.size(), Ballot());
    StartHosting();
    LogInfo("moved replicas", {{"step", absl::StrCat(step_)}, {"because", hosting_.reason()}});
  } else if (reporter_.progress().hosting_reason != hosting_.reason()) {
    ReportHosting();
  }
  return absl::OkStatus();
}

absl::Status TrainLoop::CompileNewRows() {
  TY_RETURN_IF_ERROR(AllowForNextStep(StepPace::kCompileLimit));
  return executable_.CompileRows(RowsOfParts(run_.share.steps, strategy_.model()), {});
}

absl::Status TrainLoop::EvaluateTestSplit() {
  agreed_.evaluate = false;
  TY_RETURN_IF_ERROR(reporter_.EnterState(Progress::State::kEvaluating));
  TY_ASSIGN_OR_RETURN(const data::Dataset* dataset, test_split_.Get());
  TY_RETURN_IF_ERROR(executable_.CompileRows(
      {}, RowsOfEvaluation(dataset->size(), SharesOf(run_.setup, run_.hosting.ranges),
                           strategy_.model().evaluation_rows)));
  // This promise covers the first batch; each batch then promises the next one.
  TY_RETURN_IF_ERROR(reporter_.Promise(pace_.Silence(pace_.CollectiveLimit())));
  SetTimeout(kEvaluationTimeout);
  if (run_.setup.spec.optimizer().ema_decay() > 0) TY_RETURN_IF_ERROR(GatherState());
  RecordedEvaluation record{.metrics = {},
                            .data_digest = dataset->digest(),
                            .backend = run_.setup.assignment.backend,
                            .ranks = SharesOf(run_.setup, run_.hosting.ranges).parts,
                            .threads = run_.setup.is_bitwise ? 1 : run_.setup.mine().threads};
  TY_RETURN_IF_ERROR(EvaluateWeights(*dataset, "test.", record));
  if (run_.setup.spec.optimizer().ema_decay() > 0) {
    TY_RETURN_IF_ERROR(executable_.ExchangeAverages());
    TY_RETURN_IF_ERROR(EvaluateWeights(*dataset, "test.ema_", record));
    TY_RETURN_IF_ERROR(executable_.ExchangeAverages());
  }
  AdjustTimeout(std::max(pace_.CollectiveLimit(), next_limit_));
  evaluated_step_ = step_;
  evaluation_ = std::move(record);
  evaluation_uptime_ = clock_.Uptime();
  TY_RETURN_IF_ERROR(
      reporter_.Promise(pace_.Silence(std::max(pace_.CollectiveLimit(), next_limit_))));
  return reporter_.Flush();
}

absl::Status TrainLoop::EvaluateWeights(const data::Dataset& dataset, absl::string_view prefix,
                                        RecordedEvaluation& record) {
  TY_ASSIGN_OR_RETURN(
      const EvaluationResult result,
      Evaluate(dataset, run_.data.preparation, SharesOf(run_.setup, run_.hosting.ranges),
               strategy_.model().evaluation_rows, executable_, *run_.gang.lines.host, clock_,
               [this](std::optional<absl::Duration> slowest) {
                 return reporter_.Promise(slowest.has_value()
                                              ? StepPace::SilenceInEvaluation(*slowest)
                                              : pace_.Silence(kEvaluationTimeout));
               }));
  record.samples = result.samples;
  record.skipped = result.skipped;
  for (const auto& [name, value] : EvaluationMetrics(result, prefix, run_.setup.spec.model())) {
    metrics_[name] = record.metrics[name] = value;
    if (step_ > run_.first_step) reporter_.AddMetric(step_, name, value);
  }
  if (step_ > run_.first_step && result.skipped > 0) {
    reporter_.AddMetric(step_, absl::StrCat(prefix, "skipped"),
                        static_cast<double>(result.skipped));
  }
  if (run_.setup.rank == 0) {
    LogInfo("evaluated", {{"step", absl::StrCat(step_)},
                          {absl::StrCat(prefix, "loss"), absl::StrCat(result.loss)},
                          {absl::StrCat(prefix, "accuracy"), absl::StrCat(result.accuracy)}});
  }
  return absl::OkStatus();
}

// If each rank updates a block of the parameters, it has only that block of what the optimizer
// keeps. This collective gathers all of it, at most once a step.
absl::Status TrainLoop::GatherState() {
  if (exchange_ == nullptr || !exchange_->is_sharded()) return absl::OkStatus();
  if (gathered_step_ == step_) return absl::OkStatus();
  // The ranks of the first pipeline write what all have, by way of rank 0.
  TY_RETURN_IF_ERROR(executable_.range_update()->CompleteStates(
      [this](absl::Span<float> state) { return exchange_->GatherBlocks(state); },
      /*reads=*/run_.setup.place.pipeline == 0));
  gathered_step_ = step_;
  return absl::OkStatus();
}

absl::Status TrainLoop::StartCheckpoint() {
  agreed_.checkpoint = false;
  const absl::Duration begin = clock_.Uptime();
  const int64_t request = control_.AnswerCheckpoint();
  TY_RETURN_IF_ERROR(GatherState());
  TY_RETURN_IF_ERROR(strategy_.GatherWholeState());
  if (run_.setup.rank != 0) {
    reporter_.progress().checkpoint_request = request;
    return absl::OkStatus();
  }
  if (const auto ended = checkpoints_.Wait()) TY_RETURN_IF_ERROR(CheckpointEnded(*ended));
  checkpoint_uptime_ = begin;
  TY_RETURN_IF_ERROR(WriteSnapshot(request));
  checkpoint_wait_ = clock_.Uptime() - begin;
  return absl::OkStatus();
}

absl::Status TrainLoop::WriteSnapshot(int64_t request) {
  checkpoint_again_uptime_ = absl::InfiniteDuration();
  // Metrics are written first, because a run that resumes from this checkpoint writes only what
  // comes after it.
  TY_RETURN_IF_ERROR(reporter_.Flush());
  RunIdentity identity = run_.identity;
  identity.hosting = CountsOf(run_.hosting.ranges);
  TY_ASSIGN_OR_RETURN(StateSnapshot snapshot,
                      TakeSnapshot(strategy_.whole_state(), step_,
                                   step_ / run_.share.steps.steps_per_epoch(), identity));
  if (evaluated_step_ == step_) snapshot.evaluation = evaluation_;
  checkpoints_.Start(std::move(snapshot), request);
  return absl::OkStatus();
}

// A checkpoint that fails in the middle of the training does not end it: the last good one is kept,
// and the next may succeed.
absl::Status TrainLoop::CheckpointEnded(const CheckpointWriter::Finished& finished) {
  reporter_.set_checkpoint_status(IsDiskFull(finished.status) ? finished.status : absl::OkStatus());
  if (!finished.status.ok()) {
    if (IsDiskFull(finished.status)) checkpoint_again_uptime_ = clock_.Uptime() + kCheckpointRetry;
    LogWarning(
        "a checkpoint could not be written",
        {{"step", absl::StrCat(finished.step)}, {"error", std::string(finished.status.message())}});
    return absl::OkStatus();
  }
  const absl::Duration now = clock_.Uptime();
  const absl::Duration written = now - checkpoint_uptime_;
  const absl::Duration waited = std::clamp(checkpoint_wait_, absl::ZeroDuration(), written);
  checkpoint_pace_.Add(waited, written);
  const v1::Interval& every = run_.setup.spec.checkpoint().every();
  const absl::Duration distance = checkpoint_pace_.Distance(now - begin_uptime_);
  LogInfo(
      "wrote a checkpoint",
      {{"step", absl::StrCat(finished.step)},
       {"training_waited", absl::FormatDuration(absl::Trunc(waited, absl::Microseconds(1)))},
       {"next_in", every.automatic() ? absl::FormatDuration(absl::Trunc(distance, absl::Seconds(1)))
                                     : spec::IntervalText(every)}});
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
  auto ended = checkpoints_.Wait();
  if (!ended.has_value()) return absl::OkStatus();  // not rank 0
  const absl::Duration deadline = clock_.Uptime() + kLastCheckpointPatience;
  while (IsDiskFull(ended->status) && clock_.Uptime() < deadline && !control_.stop_requested()) {
    TY_RETURN_IF_ERROR(CheckpointEnded(*ended));
    TY_RETURN_IF_ERROR(reporter_.EnterState(Progress::State::kCheckpointing));
    clock_.SleepFor(kLastCheckpointRetry);
    TY_RETURN_IF_ERROR(WriteSnapshot(ended->request));
    ended = checkpoints_.Wait();
  }
  TY_RETURN_IF_ERROR(ended->status);
  return CheckpointEnded(*ended);
}

}  // namespace trainyard::trainer
