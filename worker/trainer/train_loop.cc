#include "worker/trainer/train_loop.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "worker/parallel/collective.h"
#include "worker/trainer/agreement.h"
#include "worker/trainer/evaluation.h"
#include "worker/trainer/hosting_plan.h"
#include "worker/trainer/model_setup.h"

namespace trainyard::trainer {

TrainLoop::TrainLoop(Training& training, Reporter& reporter, const Signals& signals, Clock& clock)
    : training_(training),
      executable_(*training.executable),
      plan_(training.plan),
      reporter_(reporter),
      clock_(clock),
      control_(training.run_dir, signals),
      checkpoints_(training.run_dir.CheckpointsDir()),
      trace_(training.run_dir, training.rank, training.device, training.first_step, clock),
      meter_(reporter),
      rows_(training, clock),
      compute_(*training.executable, trace_, clock),
      hosting_(
          {.replicas = training.identity.replicas,
           .rows = static_cast<double>(training.identity.global_batch) / training.identity.replicas,
           .hosting = training.hosting,
           .reason = training.hosting_reason,
           .room = training.replica_room}),
      step_(training.first_step),
      gathered_step_(training.first_step),
      ballots_(static_cast<size_t>(training.communicators.host->world_size())),
      evaluation_uptime_(clock.Uptime()),
      checkpoint_uptime_(evaluation_uptime_) {
  StartHosting();
}

// Rows, sums and records as training.hosting says, from the next step on.
void TrainLoop::StartHosting() {
  rows_.Start(plan_, step_);
  compute_.set_syncs_statistics(training_.statistics != nullptr);
  // Where its parts are replicas; else one part is cut into microbatches.
  if (training_.pipeline.has_value() && training_.computes_replicas_alone) {
    compute_.set_pipeline(training_.pipeline->executable);
  }
  if (training_.sums.has_value()) compute_.set_sums(*training_.sums);
  ReportHosting();
}

void TrainLoop::ReportHosting() {
  if (training_.rank != 0) return;
  std::vector<run_dir::RankHosting>& hosting = reporter_.progress().hosting;
  hosting.clear();
  const int stages = std::max(1, training_.spec.stages.count);
  for (run_dir::RankHosting record : hosting_.Records()) {
    const int first_rank = record.rank * stages;
    for (int stage = 0; stage < stages; ++stage) {
      record.rank = first_rank + stage;
      record.stage = stage;
      hosting.push_back(record);
    }
  }
  reporter_.progress().hosting_reason = hosting_.reason();
}

absl::StatusOr<TrainLoop::End> TrainLoop::Run() {
  while (step_ < plan_.total_steps() && !agreed_.stop) {
    TY_RETURN_IF_ERROR(Step());
    TY_RETURN_IF_ERROR(WithStep(AfterStep()));
  }
  const bool finished = step_ >= plan_.total_steps();
  ReportPipeline();
  // A run that resumes at its end has not evaluated yet.
  if (finished && evaluated_step_ != step_) TY_RETURN_IF_ERROR(WithStep(EvaluateTestSplit()));
  TY_RETURN_IF_ERROR(WithStep(WriteLastCheckpoint()));
  return finished ? End::kFinished : End::kStopped;
}

// What ranks do together between steps knows of no step by itself.
absl::Status TrainLoop::WithStep(const absl::Status& status) const {
  if (!parallel::BlameOf(status).has_value()) return status;
  return Annotate(status, absl::StrCat("after step ", step_));
}

// One step: every rank computes the rows of the replicas that it hosts, the sums over all rows meet
// in the reduction arena of every rank, and every rank makes the same update. Where a device works
// by itself, the update is on its way when this returns, and the one before is finished.
absl::Status TrainLoop::Step() {
  const absl::Duration start = clock_.Uptime();
  const double lr = engine::LearningRate(training_.schedule, step_);
  const bool traces = trace_.BeginStep(step_ + 1);
  TY_ASSIGN_OR_RETURN(const StepRows rows, rows_.Next(step_));
  trace_.Add(Trace::Lane::kData, "wait for data", start, clock_.Uptime());
  if (training_.exchange != nullptr) {
    TY_RETURN_IF_ERROR(StepTogether(rows, lr));
  } else {
    TY_RETURN_IF_ERROR(AgreeOnVotes(CastBallot(rows.skipped)));
    if (rows.parts.size() == 1) {
      const Trace::Span span(trace_, Trace::Lane::kCompute, "step");
      TY_RETURN_IF_ERROR(executable_.StartStep(rows.parts[0].rows, lr));
    } else {
      TY_RETURN_IF_ERROR(compute_.Run(rows.parts, /*ready=*/{}));
      const Trace::Span span(trace_, Trace::Lane::kCompute, "update");
      TY_RETURN_IF_ERROR(executable_.StartUpdate(lr));
    }
  }
  if (traces) trace_.EndStep();
  // The first step compiles what it meets.
  if (training_.pipeline.has_value() && step_ > training_.first_step) {
    const PipelineTimes& times = training_.pipeline->executable->times();
    pipeline_times_.total += times.total;
    pipeline_times_.computed += times.computed;
    ++pipeline_steps_;
  }

  ++step_;
  agreed_ = AgreedVotes(ballots_);
  unfinished_.push_back({.step = step_, .lr = lr, .skipped = SkippedSamples(ballots_)});
  const auto in_flight = static_cast<size_t>(executable_.max_updates_in_flight());
  TY_RETURN_IF_ERROR(FinishUpdates(in_flight - 1));
  pace_.Add(clock_.Uptime() - start);
  AdjustTimeout(pace_.CollectiveLimit());
  return absl::OkStatus();
}

// Gradients leave for the other ranks while backward still computes those before them, and each
// bucket is updated when its sum is there.
absl::Status TrainLoop::StepTogether(const StepRows& rows, double lr) {
  parallel::GradientExchange& exchange = *training_.exchange;
  const Ballot ballot = CastBallot(rows.skipped);
  // The exchange is between the ranks of one stage.
  if (training_.pipeline.has_value()) TY_RETURN_IF_ERROR(AgreeOnVotes(ballot));
  exchange.set_tracing(trace_.is_on());
  TY_RETURN_IF_ERROR(exchange.Begin(step_ + 1, EncodeBallot(ballot)));
  TY_RETURN_IF_ERROR(
      compute_.Run(rows.parts, [&exchange](int64_t end) { return exchange.Ready(end); }));
  computed_rows_ = rows.rows;

  if (training_.updates_ranges) TY_RETURN_IF_ERROR(executable_.range_update()->BeginUpdate(lr));
  for (size_t bucket = 0; bucket < exchange.buckets().size(); ++bucket) {
    TY_RETURN_IF_ERROR(exchange.Land(bucket));
    if (training_.updates_ranges) TY_RETURN_IF_ERROR(UpdateBlock(exchange.OwnBlock(bucket)));
    if (exchange.is_sharded()) TY_RETURN_IF_ERROR(exchange.Share(bucket));
  }
  std::vector<double> ballots(training_.hosting.size() * kBallotLength);
  TY_RETURN_IF_ERROR(exchange.Finish(absl::MakeSpan(ballots)));
  if (!training_.pipeline.has_value()) ballots_ = DecodeBallots(ballots);
  TY_RETURN_IF_ERROR(CheckLoss(ballots_));
  {
    const Trace::Span span(trace_, Trace::Lane::kCompute, "update");
    TY_RETURN_IF_ERROR(training_.updates_ranges ? executable_.range_update()->EndUpdate()
                                                : executable_.StartUpdate(lr));
  }
  MeasureStep();
  return absl::OkStatus();
}

Ballot TrainLoop::CastBallot(int64_t skipped) {
  // The stages of a pipeline pass over the same samples.
  const bool counts = !training_.pipeline.has_value() || training_.pipeline->stage == 0;
  return {.votes = CastVotes(),
          .skipped = counts ? skipped : 0,
          .computed_rows = computed_rows_,
          .compute_seconds = absl::ToDoubleSeconds(ComputeTime()),
          .diverged = diverged_};
}

absl::Status TrainLoop::AgreeOnVotes(const Ballot& mine) {
  ballots_ = {mine};
  if (!training_.pipeline.has_value()) return absl::OkStatus();
  TY_ASSIGN_OR_RETURN(const std::vector<double> all,
                      GatherNumbers(*training_.communicators.host, EncodeBallot(mine)));
  ballots_ = DecodeBallots(all);
  return absl::OkStatus();
}

void TrainLoop::ReportPipeline() {
  if (pipeline_steps_ == 0) return;
  const double total = absl::ToDoubleSeconds(pipeline_times_.total);
  const double waited = 1 - absl::ToDoubleSeconds(pipeline_times_.computed) / total;
  metrics_["pipeline.step_seconds"] = total / static_cast<double>(pipeline_steps_);
  metrics_["pipeline.waited"] = waited;
  metrics_["pipeline.predicted_bubble"] = training_.pipeline->predicted_bubble;
  LogInfo("trained a stage",
          {{"pipeline", absl::StrCat(training_.pipeline->pipeline)},
           {"stage", absl::StrCat(training_.pipeline->stage)},
           {"step_seconds", absl::StrCat(metrics_["pipeline.step_seconds"])},
           {"waited", absl::StrCat(waited)},
           {"predicted_bubble", absl::StrCat(training_.pipeline->predicted_bubble)}});
}

// A stage waits for its neighbours in between, which is no work of its own.
absl::Duration TrainLoop::ComputeTime() const {
  return training_.pipeline.has_value() ? training_.pipeline->executable->times().computed
                                        : compute_.compute_time();
}

void TrainLoop::MeasureStep() {
  const parallel::CommStats& stats = training_.exchange->stats();
  meter_.Add(step_ + 1, clock_.Uptime(), ComputeTime(), stats, ballots_);
  for (const parallel::CommEvent& event : stats.events) {
    const bool is_wait = event.kind == parallel::CommEvent::Kind::kWait;
    const bool is_reduce = event.kind == parallel::CommEvent::Kind::kReduce;
    trace_.Add(is_wait ? Trace::Lane::kWait : Trace::Lane::kCommunication,
               absl::StrCat(is_wait     ? "wait for bucket "
                            : is_reduce ? "reduce bucket "
                                        : "share bucket ",
                            event.bucket),
               event.begin, event.end);
  }
}

absl::Status TrainLoop::UpdateBlock(const parallel::Bucket& block) {
  const auto gradients = static_cast<int64_t>(executable_.parameters().size());
  const int64_t end = std::min(block.end, gradients);
  const Trace::Span span(trace_, Trace::Lane::kCompute, "update");
  return block.begin < end ? executable_.range_update()->UpdateRange(block.begin, end)
                           : absl::OkStatus();
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
                                         .data_wait = rows_.waited()}));
  reported_ = update;
  if (std::isfinite(metrics.loss)) return absl::OkStatus();
  // Where each rank has its own blocks the others may not know: they wait for this one until it has
  // told them.
  diverged_ = training_.exchange != nullptr && training_.exchange->is_sharded();
  return diverged_ ? absl::OkStatus() : LossError(metrics.loss);
}

absl::Status TrainLoop::LossError(double loss) const {
  const auto rule = MakeOptimizer(training_.spec.optimizer).rule;
  return error::LossNotFinite(loss, reported_.step,
                              absl::StrCat("optimizer.", engine::RuleName(rule), ".lr"),
                              reported_.lr);
}

absl::Status TrainLoop::CheckLoss(absl::Span<const Ballot> ballots) const {
  if (!HasDiverged(ballots)) return absl::OkStatus();
  const double loss = metrics_.at("train.loss");
  return LossError(std::isfinite(loss) ? std::numeric_limits<double>::quiet_NaN() : loss);
}

// A collective: before something is made of the parameters, for which the next step's ballots are
// too late.
absl::Status TrainLoop::AgreeOnLoss() {
  if (training_.exchange == nullptr || !training_.exchange->is_sharded()) return absl::OkStatus();
  TY_ASSIGN_OR_RETURN(
      const std::vector<double> all,
      GatherNumbers(*training_.communicators.host, EncodeBallot({.diverged = diverged_})));
  return CheckLoss(DecodeBallots(all));
}

// What a step may take from now on, where others wait for it.
void TrainLoop::AdjustTimeout(absl::Duration limit) {
  SetTimeout(limit);
  reporter_.set_running_silence(pace_.Silence(limit));
}

void TrainLoop::SetTimeout(absl::Duration timeout) {
  training_.communicators.host->set_timeout(timeout);
  if (training_.pipeline.has_value()) training_.pipeline->executable->set_timeout(timeout);
  if (training_.exchange != nullptr) training_.exchange->set_timeout(timeout);
  if (training_.statistics != nullptr) training_.statistics->communicator->set_timeout(timeout);
}

}  // namespace trainyard::trainer
