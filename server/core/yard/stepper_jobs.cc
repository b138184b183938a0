// Steps jobs, does the queue's bookkeeping, and decides which of their checkpoints stay.
#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/strings.h"
#include "server/core/yard/stepper.h"

namespace trainyard::core {
namespace {

template <typename T>
T* Get(job_fsm::Result& result) {
  return std::get_if<T>(&result);
}

// Returns the words that a state adds to its event.
std::string Detail(const JobState& state) {
  if (const auto* queued = std::get_if<job_fsm::Queued>(&state)) {
    return queued->last_failure.has_value() ? FailureText(*queued->last_failure) : "";
  }
  if (const auto* failed = std::get_if<job_fsm::Failed>(&state)) {
    return FailureText(failed->failure);
  }
  if (const auto* held = std::get_if<job_fsm::Suspended>(&state)) {
    return held->failure.has_value() ? FailureText(*held->failure) : "";
  }
  if (const auto* stopping = std::get_if<job_fsm::Stopping>(&state)) {
    return stopping->detail.empty() ? std::string(Text(stopping->reason)) : stopping->detail;
  }
  return "";
}

std::string Join(const std::string& a, const std::string& b) {
  if (a.empty() || b.empty() || a == b) return a.empty() ? b : a;
  return absl::StrCat(a, "; ", b);
}

// Returns the verb of a refusal, as in "cannot be suspended".
absl::string_view Verb(const job_fsm::Input& input) {
  if (std::holds_alternative<job_fsm::Cancel>(input)) return "cancelled";
  if (std::holds_alternative<job_fsm::Suspend>(input)) return "suspended";
  if (std::holds_alternative<job_fsm::Resume>(input)) return "resumed";
  return "changed";
}

// Returns the value of JobRecord::stop_reason for a job in this state.
StopReason StopReasonIn(const JobRecord& job) {
  if (std::holds_alternative<job_fsm::Starting>(job.state)) return StopReason::kNone;
  if (const auto* stopping = std::get_if<job_fsm::Stopping>(&job.state)) return stopping->reason;
  // Without an attempt there is no stop, so only the verb's reason remains.
  if (const auto* suspended = std::get_if<job_fsm::Suspended>(&job.state)) {
    return suspended->failure.has_value() ? StopReason::kNone : StopReason::kSuspend;
  }
  if (std::holds_alternative<job_fsm::Cancelled>(job.state)) return StopReason::kCancel;
  return job.stop_reason;
}

// Returns how many of the newest checkpoints stay so that `kept` whole ones are among them.
// `records` are in ascending order.
size_t NewestThatStay(const std::vector<const CheckpointRecord*>& records, size_t kept) {
  size_t stay = 0;
  for (size_t whole = 0; stay < records.size() && whole < kept; ++stay) {
    if (records[records.size() - 1 - stay]->is_whole()) ++whole;
  }
  return stay;
}

}  // namespace

std::optional<CheckpointRef> ResumePoint(const Snapshot& snapshot, const JobRecord& job) {
  const auto& checkpoints = snapshot.checkpoints;
  auto it = checkpoints.upper_bound({job.id, std::numeric_limits<int64_t>::max()});
  while (it != checkpoints.begin() && (--it)->first.job == job.id && !it->first.is_outputs()) {
    if (it->second.is_whole()) return it->first;
  }
  return job.submission->parent_checkpoint;
}

std::string ActorOf(absl::string_view worker) {
  return absl::StrCat("worker:", worker);
}

void Stepper::SkipJobNumbers(JobId last) {
  const JobId first{yard_.snapshot().next_job};
  if (last < first) return;
  yard_.ledger.SkipJobs(last);
  AddEvent(JobName(first), "JOB_NUMBERS_SKIPPED", "server",
           absl::StrCat("no new job gets a number up to ", JobName(last),
                        ", since there were such jobs before a restore"));
}

void Stepper::AddEvent(std::string resource, std::string type, absl::string_view actor,
                       std::string message) {
  yard_.ledger.AddEvent(now_.wall_us, std::move(resource), std::move(type), actor,
                        std::move(message));
}

absl::Status Stepper::StepJob(JobId id, const job_fsm::Input& input, absl::string_view actor,
                              const std::string& message) {
  const auto found = yard_.snapshot().jobs.find(id);
  if (found == yard_.snapshot().jobs.end()) return error::JobNotFound(JobName(id));
  const JobState before = found->second.state;
  job_fsm::Result result = job_fsm::Step(before, input);
  if (Get<Refused>(result) != nullptr) {
    return error::JobStateConflict(JobName(id), job_fsm::Name(before), Verb(input));
  }
  auto* transition = Get<Transition<JobState, job_fsm::Effect>>(result);
  if (transition == nullptr) return absl::OkStatus();  // ignored

  JobRecord& job = yard_.ledger.EditJob(id);
  job.state = std::move(transition->next);
  EnterJobState(id, before);
  AddEvent(JobName(id), absl::StrCat("JOB_", job_fsm::Name(job.state)), actor,
           Join(Detail(job.state), message));
  for (const job_fsm::Effect& effect : transition->effects) {
    if (const auto* stop = std::get_if<job_fsm::StopAttempt>(&effect)) {
      StepAttempt({id, job.attempt}, attempt_fsm::Stop{stop->reason}, actor);
    } else {
      ++job.retries;
    }
  }
  return absl::OkStatus();
}

// Keeps times and indices in step with the state.
void Stepper::EnterJobState(JobId id, const JobState& before) {
  JobRecord& job = yard_.ledger.EditJob(id);
  yard_.changes.plan_again = true;
  if (std::holds_alternative<job_fsm::Queued>(before)) LeaveQueue(id);
  if (std::holds_alternative<job_fsm::Queued>(job.state)) EnterQueue(id);
  const bool waits_no_more =
      std::holds_alternative<job_fsm::Suspended>(job.state) || job_fsm::IsFinal(job.state);
  if (waits_no_more) Withdraw(id);
  job.stop_reason = StopReasonIn(job);
  if (job_fsm::IsFinal(job.state)) EndJob(id, before);
}

// Wakes the jobs that wait for this job's end, and releases the checkpoint that it was created
// from.
void Stepper::EndJob(JobId id, const JobState& before) {
  JobRecord& job = yard_.ledger.EditJob(id);
  job.end_us = now_.wall_us;
  if (const auto waiting = yard_.dependents.find(id); waiting != yard_.dependents.end()) {
    yard_.changes.jobs.insert(waiting->second.begin(), waiting->second.end());
  }
  if (std::holds_alternative<job_fsm::Succeeded>(job.state)) {
    yard_.speeds.Note(id, job.submission->work, job.device_time_us);
  }
  auto* failed = std::get_if<job_fsm::Failed>(&job.state);
  if (failed != nullptr && std::holds_alternative<job_fsm::Stopping>(before) &&
      job.stop_reason == StopReason::kTimeLimit) {
    const std::optional<CheckpointRef> last = ResumePoint(yard_.snapshot(), job);
    absl::StrAppend(&failed->failure.message,
                    last.has_value() && last->job == id
                        ? absl::StrCat("; last checkpoint at step ", last->step)
                        : "; no checkpoint was written");
  }
  for (const CheckpointRef& start : job.submission->NeededCheckpoints()) {
    if (--yard_.parents.at(start) > 0) continue;
    yard_.parents.erase(start);
    CleanCheckpoints(start.job, "server");
  }
}

void Stepper::EnterQueue(JobId id) {
  const JobRecord& job = yard_.ledger.job(id);
  const Submission& submission = *job.submission;
  yard_.changes.jobs.insert(id);
  yard_.accounts.CountQueued(submission, 1);
  for (const Dependency& dependency : submission.dependencies) {
    yard_.dependents[dependency.job].insert(id);
  }
  // A wall clock that has jumped must not hold a failed job back forever.
  const int64_t not_before_us = std::get<job_fsm::Queued>(job.state).not_before_us;
  int64_t left = std::min(not_before_us - now_.wall_us, yard_.config.backoff_max_us);
  if (not_before_us == 0) left = StartDelay(submission);
  if (left > 0) yard_.wakes.Set(id, now_.uptime_us + left);
}

int64_t Stepper::StartDelay(const Submission& submission) const {
  return std::min(submission.not_before_us - now_.wall_us, yard_.config.wall_recheck_us);
}

void Stepper::LeaveQueue(JobId id) {
  const Submission& submission = *yard_.ledger.job(id).submission;
  yard_.changes.jobs.insert(id);
  yard_.accounts.CountQueued(submission, -1);
  for (const Dependency& dependency : submission.dependencies) {
    const auto waiting = yard_.dependents.find(dependency.job);
    if (waiting == yard_.dependents.end()) continue;
    waiting->second.erase(id);
    if (waiting->second.empty()) yard_.dependents.erase(waiting);
  }
  yard_.wakes.Set(id, std::nullopt);
}

void Stepper::CountStored(const CheckpointRecord& checkpoint, int64_t sign) {
  const auto job = yard_.snapshot().jobs.find(checkpoint.id.job);
  if (job == yard_.snapshot().jobs.end()) return;
  yard_.accounts.CountStored(*job->second.submission, sign * checkpoint.bytes());
}

void Stepper::AddCheckpoint(CheckpointRecord checkpoint, const std::string& actor) {
  const CheckpointRef id = checkpoint.id;
  CountStored(checkpoint, 1);
  if (id.is_outputs()) {
    AddEvent(JobName(id.job), "OUTPUTS_COMMITTED", actor,
             absl::StrCat(checkpoint.files.size(), " outputs of attempt ", checkpoint.attempt, ", ",
                          FormatBytes(checkpoint.bytes())));
    yard_.ledger.AddCheckpoint(std::move(checkpoint));
    yard_.ledger.EditJob(id.job);  // its size has changed
    return;
  }
  AddEvent(JobName(id.job), "CHECKPOINT_COMMITTED", actor,
           absl::StrCat("checkpoint at step ", id.step, " of attempt ", checkpoint.attempt));
  yard_.ledger.AddCheckpoint(std::move(checkpoint));
  yard_.ledger.EditJob(id.job);  // the job shows its newest checkpoint
  CleanCheckpoints(id.job, actor);
}

void Stepper::SetDamage(const CheckpointRef& id, const std::string& damage) {
  yard_.ledger.EditCheckpoint(id).damage = damage;
  // A deleted job has no history any more, but a checkpoint of it may still be needed.
  if (yard_.snapshot().jobs.count(id.job) == 0) return;
  yard_.ledger.EditJob(id.job);  // the job shows its newest whole checkpoint
  AddEvent(
      JobName(id.job), damage.empty() ? "CHECKPOINT_WHOLE" : "CHECKPOINT_DAMAGED", "server",
      absl::StrCat(id.is_outputs() ? "the outputs" : absl::StrCat("checkpoint at step ", id.step),
                   damage.empty() ? " is whole again" : absl::StrCat(": ", damage)));
}

// Deletes checkpoints of a deleted job that were kept for jobs that were to start from them.
void Stepper::DropOrphans(JobId job) {
  std::vector<CheckpointRef> orphans;
  const auto& checkpoints = yard_.snapshot().checkpoints;
  for (auto it = checkpoints.lower_bound({job, std::numeric_limits<int64_t>::min()});
       it != checkpoints.end() && it->first.job == job; ++it) {
    if (yard_.parents.count(it->first) == 0) orphans.push_back(it->first);
  }
  for (const CheckpointRef& id : orphans) yard_.ledger.DeleteCheckpoint(id);
}

// Deletes what keep.last and keep.best no longer cover; they cover only whole checkpoints. A
// checkpoint stays while a job that has not ended, or an attempt that is about to start, is to
// begin from it.
void Stepper::CleanCheckpoints(JobId job, absl::string_view actor) {
  const auto record = yard_.snapshot().jobs.find(job);
  if (record == yard_.snapshot().jobs.end()) return DropOrphans(job);
  const Submission& submission = *record->second.submission;
  // Somebody has chosen what to import, and no newer ones will follow.
  if (submission.is_imported()) return;
  std::vector<const CheckpointRecord*> records;  // ascending by step
  std::vector<CheckpointRef> all;
  const auto& checkpoints = yard_.snapshot().checkpoints;
  for (auto it = checkpoints.lower_bound({job, 0}); it != checkpoints.end() && it->first.job == job;
       ++it) {
    records.push_back(&it->second);
    all.push_back(it->first);
  }
  const size_t kept = static_cast<size_t>(submission.checkpoints_kept);
  const size_t stay = NewestThatStay(records, kept);
  if (all.size() <= stay) return;
  std::optional<CheckpointRef> best;
  if (const CheckpointRecord* found = BestCheckpoint(submission, records);
      submission.keeps_best && found != nullptr) {
    best = found->id;
  }
  all.resize(all.size() - stay);
  const AttemptId newest{job, record->second.attempt};
  for (const CheckpointRef& id : all) {
    if (yard_.parents.count(id) > 0 || id == best) continue;
    if (yard_.live.Find(newest) != nullptr && yard_.ledger.attempt(newest).resume_from == id) {
      continue;
    }
    CountStored(checkpoints.at(id), -1);
    yard_.ledger.DeleteCheckpoint(id);
    AddEvent(JobName(job), "CHECKPOINT_DELETED", actor,
             absl::StrCat("checkpoint at step ", id.step, "; the newest ", kept,
                          best.has_value() ? " and the best stay" : " stay"));
  }
}

}  // namespace trainyard::core
