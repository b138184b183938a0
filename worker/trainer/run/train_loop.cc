// Trains. The order of a step's parts makes it fast: gradients leave while backward computes, and
// the next step starts while the device still makes the update of this one.
#include "worker/trainer/run/train_loop.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/spec/interval.h"
#include "worker/parallel/collective.h"
#include "worker/trainer/plan/model_setup.h"
#include "worker/trainer/run/agreement.h"
#include "worker/trainer/run/evaluation.h"

namespace trainyard::trainer {
namespace {

using parallel::CommEvent;

Trace::Lane LaneOf(CommEvent::Kind kind) {
  switch (kind) {
    case CommEvent::Kind::kWait:
      return Trace::Lane::kWait;
    case CommEvent::Kind::kCompute:
      return Trace::Lane::kCompute;
    case CommEvent::Kind::kReduce:
    case CommEvent::Kind::kShare:
      break;
  }
  return Trace::Lane::kCommunication;
}

std::string NameOf(const CommEvent& event) {
  switch (event.kind) {
    case CommEvent::Kind::kWait:
      return absl::StrCat("wait for bucket ", event.bucket);
    case CommEvent::Kind::kCompute:
      return "forward+backward";
    case CommEvent::Kind::kReduce:
      return absl::StrCat("reduce bucket ", event.bucket);
    case CommEvent::Kind::kShare:
      break;
  }
  return absl::StrCat("share bucket ", event.bucket);
}

// Returns about how long it takes to copy parameters and what an optimizer keeps of them, at a
// modest rate for memory and for the way off a device.
absl::Duration CopyTime(engine::Executable& executable) {
  constexpr double kBytesPerSecond = 1e9;
  constexpr double kBytesOfParameter = 3 * sizeof(float);
  return absl::Seconds(static_cast<double>(executable.parameters().size()) * kBytesOfParameter /
                       kBytesPerSecond);
}

}  // namespace

TrainLoop::TrainLoop(PreparedRun run, Reporter& reporter, const Signals& signals, Clock& clock)
    : run_(std::move(run)),
      strategy_(*run_.strategy),
      executable_(strategy_.executable()),
      exchange_(run_.gang.exchange.get()),
      ranges_(run_.gang.updates_ranges ? executable_.range_update() : nullptr),
      reporter_(reporter),
      clock_(clock),
      control_(run_.setup.run_dir, signals),
      checkpoints_(run_.setup.run_dir.CheckpointsDir()),
      trace_(run_.setup.run_dir, run_.setup.rank, run_.setup.mine().device, run_.first_step, clock),
      meter_(reporter),
      rows_(run_.data, strategy_.model(), run_.identity.seed, clock),
      compute_(strategy_.MakeCompute(trace_, clock)),
      hosting_({.replicas = run_.identity.replicas,
                .rows = static_cast<double>(run_.identity.global_batch) / run_.identity.replicas,
                .hosting = run_.hosting.ranges,
                .reason = run_.hosting.reason,
                .room = run_.hosting.room}),
      test_split_(run_.setup.spec.data().dataset(), run_.setup.dataset_options),
      step_(run_.first_step),
      gathered_step_(run_.first_step),
      ballots_(static_cast<size_t>(run_.setup.world_size())),
      evaluation_uptime_(clock.Uptime()),
      checkpoint_uptime_(evaluation_uptime_),
      begin_uptime_(evaluation_uptime_),
      checkpoint_pace_(run_.setup.assignment.failures, run_.setup.assignment.run_time,
                       CopyTime(executable_)) {
  StartHosting();
  if (exchange_ == nullptr) return;
  executable_.set_wait_watch([this](absl::Duration waited) { return exchange_->Watch(waited); });
  std::vector<int64_t> ends;
  for (const parallel::Bucket& bucket : exchange_->buckets()) ends.push_back(bucket.end);
  executable_.set_ready_ends(ends);
}

TrainLoop::~TrainLoop() {
  executable_.set_wait_watch({});
}

// Takes rows, sums and records by the hosting, from the next step on.
void TrainLoop::StartHosting() {
  rows_.Start(run_.share.steps, step_);
  compute_->set_sums(run_.share.sums);
  ReportHosting();
}

void TrainLoop::ReportHosting() {
  if (run_.setup.rank != 0) return;
  std::vector<run_dir::RankHosting>& hosting = reporter_.progress().hosting;
  hosting.clear();
  const int stages = run_.setup.place.stages;
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
  const int64_t total_steps = run_.share.steps.total_steps();
  while (step_ < total_steps && !agreed_.stop) {
    TY_RETURN_IF_ERROR(Step());
    TY_RETURN_IF_ERROR(AfterStep());
  }
  trace_.EndStep();
  const bool finished = step_ >= total_steps;
  for (const auto& [name, value] : strategy_.Summarize()) metrics_[name] = value;
  // A run that resumes at its end has not evaluated yet.
  if (finished && evaluated_step_ != step_) TY_RETURN_IF_ERROR(WithStep(EvaluateTestSplit()));
  TY_RETURN_IF_ERROR(WithStep(WriteLastCheckpoint()));
  return finished ? End::kFinished : End::kStopped;
}

// Errors of what ranks do together between steps do not contain the step.
absl::Status TrainLoop::WithStep(const absl::Status& status) const {
  if (!parallel::BlameOf(status).has_value()) return status;
  return Annotate(status, absl::StrCat("after step ", step_));
}

// Makes one step: every rank computes the rows of the replicas that it hosts, the sums over all
// rows are collected in the reduction arena of every rank, and every rank makes the same update. If
// a device works asynchronously, the update is under way when this returns, and the one before is
// finished.
absl::Status TrainLoop::Step() {
  const absl::Duration start = clock_.Uptime();
  const double lr = engine::LearningRate(run_.schedule, step_);
  trace_.BeginStep(step_ + 1);
  TY_ASSIGN_OR_RETURN(const StepRows rows, rows_.Next(step_));
  trace_.Add(Trace::Lane::kData, "wait for data", start, clock_.Uptime());
  const Ballot ballot = CastBallot(rows.skipped);
  TY_ASSIGN_OR_RETURN(std::vector<Ballot> apart, strategy_.Vote(ballot));
  if (!HearsBallotsLater()) Hear(std::move(apart));
  TY_RETURN_IF_ERROR(exchange_ == nullptr ? StepAlone(rows, lr) : StepTogether(rows, lr, ballot));
  trace_.EndStep();

  ++step_;
  unfinished_.push_back({.step = step_, .lr = lr});
  const auto in_flight = static_cast<size_t>(executable_.max_updates_in_flight());
  TY_RETURN_IF_ERROR(FinishUpdates(in_flight - 1));
  // The host may only have enqueued the step.
  const absl::Duration took = std::max(clock_.Uptime() - start, computed_.time);
  pace_.Add(took);
  if (checkpoints_.in_flight()) checkpoint_wait_ += took - pace_.median();
  if (exchange_ == nullptr || computed_.step >= limited_step_) next_limit_ = absl::ZeroDuration();
  AdjustTimeout(std::max(pace_.CollectiveLimit(), next_limit_));
  return absl::OkStatus();
}

absl::Status TrainLoop::StepAlone(const StepRows& rows, double lr) {
  if (rows.parts.size() == 1) {
    const Trace::Span span(trace_, Trace::Lane::kCompute, "step");
    return executable_.StartStep(rows.parts[0].rows, lr);
  }
  TY_RETURN_IF_ERROR(compute_->Run(rows.parts, /*ready=*/{}));
  const Trace::Span span(trace_, Trace::Lane::kCompute, "update");
  return executable_.StartUpdate(lr);
}

// Gradients leave for the other ranks while backward still computes those before them, and each
// bucket is updated when its sum is there. Between devices, nothing here waits for this step's
// sums: the host only waits for those of the step before, while the device already computes.
absl::Status TrainLoop::StepTogether(const StepRows& rows, double lr, const Ballot& ballot) {
  parallel::GradientExchange& exchange = *exchange_;
  exchange.set_tracing(trace_.is_on());
  TY_RETURN_IF_ERROR(exchange.Begin(step_ + 1, EncodeBallot(ballot)));
  TY_RETURN_IF_ERROR(
      compute_->Run(rows.parts, [&exchange](int64_t end) { return exchange.Ready(end); }));

  if (ranges_ != nullptr) TY_RETURN_IF_ERROR(ranges_->BeginUpdate(lr));
  for (size_t bucket = 0; bucket < exchange.buckets().size(); ++bucket) {
    TY_RETURN_IF_ERROR(exchange.Land(bucket));
    if (ranges_ != nullptr) TY_RETURN_IF_ERROR(UpdateBlock(exchange.OwnBlock(bucket)));
    if (exchange.is_sharded()) TY_RETURN_IF_ERROR(exchange.Share(bucket));
  }
  TY_RETURN_IF_ERROR(exchange.End());
  exchanged_.push_back({.step = step_ + 1, .rows = rows.rows});
  TY_RETURN_IF_ERROR(FinishExchanges(static_cast<size_t>(exchange.lag())));
  const Trace::Span span(trace_, Trace::Lane::kCompute, "update");
  return ranges_ != nullptr ? ranges_->EndUpdate() : executable_.StartUpdate(lr);
}

bool TrainLoop::HearsBallotsLater() const {
  return exchange_ != nullptr && !strategy_.votes_apart();
}

// A vote stays until it is answered. All ballots of earlier steps are heard before an answer, so
// that none asks for the same again.
void TrainLoop::Hear(std::vector<Ballot> ballots) {
  ballots_ = std::move(ballots);
  skipped_.push_back(SkippedSamples(ballots_));
  const Votes votes = AgreedVotes(ballots_);
  agreed_.stop |= votes.stop;
  agreed_.checkpoint |= votes.checkpoint;
  agreed_.evaluate |= votes.evaluate;
}

absl::Status TrainLoop::FinishExchanges(size_t left) {
  while (exchanged_.size() > left) {
    std::vector<double> ballots(run_.hosting.ranges.size() * kBallotLength);
    TY_RETURN_IF_ERROR(exchange_->Finish(absl::MakeSpan(ballots)));
    computed_ = exchanged_.front();
    exchanged_.pop_front();
    computed_.time = compute_->compute_time().value_or(
        exchange_->stats().computed.value_or(absl::ZeroDuration()));
    if (HearsBallotsLater()) Hear(DecodeBallots(ballots));
    TY_RETURN_IF_ERROR(CheckLoss(ballots_));
    MeasureStep();
  }
  return absl::OkStatus();
}

Ballot TrainLoop::CastBallot(int64_t skipped) {
  return {.votes = CastVotes(),
          .skipped = skipped,
          .computed_step = computed_.step,
          .computed_rows = computed_.rows,
          .compute_seconds = absl::ToDoubleSeconds(computed_.time),
          .diverged_step = diverged_step_};
}

void TrainLoop::MeasureStep() {
  const parallel::CommStats& stats = exchange_->stats();
  meter_.Add(computed_.step, clock_.Uptime(), computed_.time, stats, ballots_);
  for (const parallel::CommEvent& event : stats.events) {
    trace_.AddLate(computed_.step, LaneOf(event.kind), NameOf(event), event.begin, event.end);
  }
}

absl::Status TrainLoop::UpdateBlock(const parallel::Bucket& block) {
  const auto gradients = static_cast<int64_t>(executable_.parameters().size());
  const int64_t end = std::min(block.end, gradients);
  const Trace::Span span(trace_, Trace::Lane::kCompute, "update");
  return block.begin < end ? ranges_->UpdateRange(block.begin, end) : absl::OkStatus();
}

Votes TrainLoop::CastVotes() {
  const v1::Interval& evaluate_every = run_.setup.spec.evaluate().every();
  Votes votes{.stop = control_.stop_requested(), .checkpoint = control_.CheckpointRequested()};
  // Only the clock of rank 0 decides.
  if (run_.setup.rank != 0) return votes;
  votes.evaluate = evaluate_every.has_time() &&
                   clock_.Uptime() - evaluation_uptime_ >= spec::FromProto(evaluate_every.time());
  votes.checkpoint |= WantsCheckpoint(votes.evaluate || IsDueAt(evaluate_every, step_ + 1));
  return votes;
}

bool TrainLoop::WantsCheckpoint(bool will_evaluate) const {
  const v1::Interval& every = run_.setup.spec.checkpoint().every();
  const absl::Duration now = clock_.Uptime();
  if (now >= checkpoint_again_uptime_) return true;
  const absl::Duration since_last = now - checkpoint_uptime_;
  if (every.has_time()) return since_last >= spec::FromProto(every.time());
  return every.automatic() &&
         checkpoint_pace_.IsDue(since_last, now - begin_uptime_, will_evaluate);
}

bool TrainLoop::IsDueAt(const v1::Interval& every, int64_t step) const {
  if (every.has_epochs()) {
    return step % (every.epochs() * run_.share.steps.steps_per_epoch()) == 0;
  }
  return every.has_steps() && step % every.steps() == 0;
}

absl::Status TrainLoop::FinishUpdates(size_t left) {
  // An update waits on the device for the sums of all ranks. The exchange waits for them first,
  // since its wait has a deadline and names the step.
  TY_RETURN_IF_ERROR(FinishExchanges(left));
  while (unfinished_.size() > left) {
    TY_ASSIGN_OR_RETURN(const engine::StepMetrics metrics, executable_.FinishUpdate());
    const Unfinished update = unfinished_.front();
    const int64_t skipped = skipped_.front();
    unfinished_.pop_front();
    skipped_.pop_front();
    TY_RETURN_IF_ERROR(ReportStep(update, skipped, metrics));
  }
  return absl::OkStatus();
}

absl::Status TrainLoop::ReportStep(const Unfinished& update, int64_t skipped,
                                   const engine::StepMetrics& metrics) {
  metrics_["train.loss"] = metrics.loss;
  metrics_["train.accuracy"] = metrics.accuracy;
  // This comes before the step's own metrics, which may be flushed with it.
  if (skipped > 0) {
    reporter_.AddMetric(update.step, "train.skipped", static_cast<double>(skipped));
  }
  TY_RETURN_IF_ERROR(reporter_.StepDone({.step = update.step,
                                         .epoch = run_.share.steps.EpochOf(update.step - 1),
                                         .rows = run_.share.steps.Rows(update.step - 1),
                                         .loss = metrics.loss,
                                         .accuracy = metrics.accuracy,
                                         .lr = update.lr,
                                         .data_wait = rows_.waited()}));
  if (std::isfinite(metrics.loss)) return absl::OkStatus();
  if (exchange_ == nullptr || !exchange_->is_sharded()) return LossError(update.step, metrics.loss);
  // If each rank updates its own blocks, the others may not know. They wait for this rank until it
  // has told them.
  if (diverged_step_ == 0) diverged_step_ = update.step;
  return absl::OkStatus();
}

absl::Status TrainLoop::LossError(int64_t step, double loss) const {
  const auto rule = MakeOptimizer(run_.setup.spec.optimizer()).rule;
  return error::LossNotFinite(loss, step, absl::StrCat("optimizer.", engine::RuleName(rule), ".lr"),
                              engine::LearningRate(run_.schedule, step - 1));
}

absl::Status TrainLoop::CheckLoss(absl::Span<const Ballot> ballots) const {
  const int64_t step = DivergedStep(ballots);
  if (step == 0) return absl::OkStatus();
  const double loss = metrics_.at("train.loss");
  return LossError(step, std::isfinite(loss) ? std::numeric_limits<double>::quiet_NaN() : loss);
}

// This collective is needed before the parameters are used for anything, for which the ballots of
// the next step would be too late.
absl::Status TrainLoop::AgreeOnLoss() {
  if (exchange_ == nullptr || !exchange_->is_sharded()) return absl::OkStatus();
  TY_ASSIGN_OR_RETURN(
      const std::vector<double> all,
      GatherNumbers(*run_.gang.lines.host, EncodeBallot({.diverged_step = diverged_step_})));
  return CheckLoss(DecodeBallots(all));
}

void TrainLoop::AdjustTimeout(absl::Duration limit) {
  SetTimeout(limit);
  reporter_.set_running_silence(pace_.Silence(limit));
}

// A longer limit that was set before for the same step remains.
absl::Status TrainLoop::AllowForNextStep(absl::Duration limit) {
  limited_step_ = step_ + 1;
  next_limit_ = std::max(next_limit_, limit);
  AdjustTimeout(next_limit_);
  return reporter_.Promise(pace_.Silence(next_limit_));
}

void TrainLoop::SetTimeout(absl::Duration timeout) {
  run_.gang.set_timeout(timeout);
  strategy_.set_timeout(timeout);
}

}  // namespace trainyard::trainer
