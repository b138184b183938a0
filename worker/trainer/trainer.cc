// Runs one rank: prepares it, trains, and classifies its failure for retries.
#include "worker/trainer/trainer.h"

#include <sched.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/errors.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/version.h"
#include "worker/parallel/collective.h"
#include "worker/run_dir/assignment.h"
#include "worker/trainer/plan/model_setup.h"
#include "worker/trainer/run/prepare.h"
#include "worker/trainer/run/reporter.h"
#include "worker/trainer/run/train_loop.h"

namespace trainyard::trainer {
namespace {

using run_dir::Outcome;
using run_dir::RankResult;

absl::Status BindToProcessors(const std::vector<int64_t>& cpus) {
  if (cpus.empty()) return absl::OkStatus();
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int64_t cpu : cpus) {
    if (cpu < CPU_SETSIZE) CPU_SET(static_cast<size_t>(cpu), &set);
  }
  if (sched_setaffinity(0, sizeof(set), &set) == 0) return absl::OkStatus();
  return ErrnoStatus(errno, "cannot bind to processors", absl::StrJoin(cpus, ","));
}

absl::Status ChooseDevice(const RankOptions& options, run_dir::Assignment& assignment) {
  if (!options.choose_device || assignment.backend != kCudaBackend) return absl::OkStatus();
  for (run_dir::RankAssignment& rank : assignment.ranks) {
    if (rank.rank == options.rank) return options.choose_device(assignment, rank);
  }
  return absl::OkStatus();
}

run_dir::Progress FirstProgress(const PreparedRun& run) {
  const StepSequence& plan = run.share.steps;
  const std::vector<engine::Fallback> fallbacks = run.strategy->executable().fallbacks();
  return {.step = run.first_step,
          .total_steps = plan.total_steps(),
          .epoch = plan.EpochOf(run.first_step),
          .epochs = plan.epochs(),
          .steps_per_epoch = plan.steps_per_epoch(),
          .planned_bytes = run.planned_bytes,
          .last_checkpoint_step = run.first_step,
          .data_digest = run.identity.data_digest,
          .model_digest = run.identity.model_digest,
          .fallbacks = static_cast<int64_t>(fallbacks.size()),
          .first_fallback = fallbacks.empty() ? "" : FallbackText(fallbacks.front())};
}

// Fills in `result` as far as it gets.
absl::Status Train(const run_dir::RunDir& dir, const RankOptions& options, const Signals& signals,
                   Clock& clock, RankResult& result) {
  TY_ASSIGN_OR_RETURN(run_dir::Assignment assignment, run_dir::ReadAssignment(dir));
  const run_dir::RankAssignment* rank = assignment.FindRank(options.rank);
  if (rank == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", dir.AssignmentPath(), "' has no rank ", options.rank));
  }
  TY_RETURN_IF_ERROR(BindToProcessors(rank->cpus));
  LogInfo("starting", {{"version", Version()},
                       {"job", absl::StrCat(assignment.job)},
                       {"attempt", absl::StrCat(assignment.attempt)},
                       {"rank", absl::StrCat(options.rank)},
                       {"world_size", absl::StrCat(assignment.world_size)},
                       {"backend", assignment.backend},
                       {"device", rank->device},
                       {"threads", absl::StrCat(rank->threads)}});
  TY_ASSIGN_OR_RETURN(Reporter reporter, Reporter::Open(dir, options.rank, {}, clock));
  TY_RETURN_IF_ERROR(ChooseDevice(options, assignment));
  TY_ASSIGN_OR_RETURN(PreparedRun run, PrepareRun(dir, assignment, options.rank, options.connect,
                                                  options.shares_memory));
  reporter.progress() = FirstProgress(run);
  TY_RETURN_IF_ERROR(reporter.EnterState(run_dir::Progress::State::kStarting));

  TrainLoop loop(std::move(run), reporter, signals, clock);
  const absl::StatusOr<TrainLoop::End> end = loop.Run();
  result.step = loop.step();
  result.metrics = loop.metrics();
  // Metrics from before a failure are worth keeping. If they cannot be written, the first error
  // counts.
  const absl::Status flushed = end.ok() ? reporter.Close() : reporter.Flush();
  TY_RETURN_IF_ERROR(end.status());
  TY_RETURN_IF_ERROR(flushed);
  if (*end == TrainLoop::End::kStopped) result.outcome = Outcome::kStopped;
  return absl::OkStatus();
}

}  // namespace

Outcome OutcomeOfStatus(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return Outcome::kSucceeded;
    case absl::StatusCode::kCancelled:
      return Outcome::kStopped;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kDataLoss:
      return Outcome::kUserError;
    case absl::StatusCode::kResourceExhausted:
      // A disk may be cleaned up, but a model that does not fit into memory will not fit tomorrow.
      return ErrorReason(status) == "DISK_FULL" ? Outcome::kTransient : Outcome::kUserError;
    default:
      return Outcome::kTransient;
  }
}

RankResult RunRank(const RankOptions& options, const Signals& signals, Clock& clock) {
  const run_dir::RunDir dir(options.run_dir);
  RankResult result;
  const absl::Status status = Train(dir, options, signals, clock, result);
  if (!status.ok()) {
    result.outcome = OutcomeOfStatus(status);
    result.reason = ErrorReason(status);
    result.message = std::string(status.message());
    if (const auto blame = parallel::BlameOf(status)) {
      result.stuck_rank = blame->peer;
      result.operation = blame->operation;
      result.sequence = blame->sequence;
    }
  }
  if (result.outcome == Outcome::kSucceeded || result.outcome == Outcome::kStopped) {
    LogInfo("finished", {{"outcome", std::string(run_dir::OutcomeName(result.outcome))},
                         {"step", absl::StrCat(result.step)}});
  } else {
    LogError("failed", {{"outcome", std::string(run_dir::OutcomeName(result.outcome))},
                        {"step", absl::StrCat(result.step)},
                        {"error", result.message}});
  }
  absl::Status written = dir.CreateRankDirectory(options.rank);
  if (written.ok()) written = run_dir::WriteRankResult(dir, options.rank, result);
  if (written.ok()) return result;
  LogError("cannot write the result", {{"error", std::string(written.message())}});
  // The record of how the run ended cannot be read, so it does not count as a success.
  if (status.ok()) result.outcome = Outcome::kTransient;
  return result;
}

}  // namespace trainyard::trainer
