// Judges claims of damage by what the server has found.
#include "server/core/yard/damage.h"

#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/errors.h"
#include "server/core/yard/stepper.h"

namespace trainyard::core {
namespace {

// A message names no more checkpoints than this.
constexpr size_t kShownMax = 5;

// Returns the newest steps first.
std::vector<int64_t> WholeSteps(const Snapshot& snapshot, JobId job) {
  std::vector<int64_t> steps;
  auto it = snapshot.checkpoints.upper_bound({job, std::numeric_limits<int64_t>::max()});
  while (it != snapshot.checkpoints.begin() && (--it)->first.job == job &&
         !it->first.is_outputs()) {
    if (it->second.is_whole()) steps.push_back(it->first.step);
  }
  return steps;
}

absl::Status DamagedError(const CheckpointRecord& checkpoint, absl::string_view instead) {
  return error::CheckpointDamaged(CheckpointName(checkpoint.id.job, checkpoint.id.step),
                                  checkpoint.damage, instead);
}

std::string NextStartText(const Snapshot& snapshot, JobId job) {
  const auto next = ResumePoint(snapshot, snapshot.jobs.at(job));
  if (!next.has_value()) return "no whole one is left, so the job starts from the beginning";
  return absl::StrCat("the job goes back to '", CheckpointName(next->job, next->step), "'");
}

}  // namespace

std::string WholeCheckpointsText(const Snapshot& snapshot, JobId job) {
  std::vector<int64_t> steps = WholeSteps(snapshot, job);
  if (steps.empty()) return absl::StrCat("job '", JobName(job), "' has no whole checkpoint");
  if (steps.size() > kShownMax) steps.resize(kShownMax);
  return absl::StrCat("whole checkpoints of job '", JobName(job), "' are at ",
                      steps.size() == 1 ? "step " : "steps ", absl::StrJoin(steps, ", "));
}

absl::Status CheckStart(const Snapshot& snapshot, const CheckpointRef& id) {
  const CheckpointRecord& checkpoint = snapshot.checkpoints.at(id);
  if (checkpoint.is_whole()) return absl::OkStatus();
  return DamagedError(checkpoint, WholeCheckpointsText(snapshot, id.job));
}

Outcome JudgeClaim(const Snapshot& snapshot, const AttemptRecord& attempt, Outcome outcome) {
  Failure& failure = outcome.failure;
  if (outcome.kind != OutcomeKind::kFailed || failure.reason != error::kCheckpointDamaged) {
    return outcome;
  }
  failure.failure_class = FailureClass::kTransient;
  const auto& start = attempt.resume_from.has_value()
                          ? attempt.resume_from
                          : snapshot.jobs.at(attempt.id.job).submission->init_checkpoint;
  const auto found =
      start.has_value() ? snapshot.checkpoints.find(*start) : snapshot.checkpoints.end();
  if (found == snapshot.checkpoints.end() || found->second.is_whole()) {
    failure.reason = "CORRUPT_FILE";
    return outcome;
  }
  const CheckpointRecord& checkpoint = found->second;
  const bool is_own = checkpoint.id.job == attempt.id.job;
  const std::string instead = is_own ? NextStartText(snapshot, attempt.id.job)
                                     : WholeCheckpointsText(snapshot, checkpoint.id.job);
  if (!is_own) failure.failure_class = FailureClass::kUserError;
  failure.message = std::string(DamagedError(checkpoint, instead).message());
  return outcome;
}

}  // namespace trainyard::core
