#include "server/core/yard/yard.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/errors.h"
#include "common/base/planted_bug.h"
#include "common/base/status_macros.h"
#include "server/core/yard/yard_impl.h"

namespace trainyard::core {

const AttemptPart* FindPart(const AttemptRecord& attempt, absl::string_view worker) {
  for (const AttemptPart& part : attempt.parts) {
    if (part.worker == worker) return &part;
  }
  return nullptr;
}

bool HoldsDevices(PartState state) {
  switch (state) {
    case PartState::kAssigned:
    case PartState::kStarting:
    case PartState::kRunning:
    case PartState::kStopping:
      return !(TY_BUG(free_at_stop_request) && state == PartState::kStopping);
    case PartState::kExited:
    case PartState::kDrained:
    case PartState::kLost:
      break;
  }
  return false;
}

// Leases and deadlines are not stored: after a start every worker has one lease to come back, and
// every deadline runs anew.
Yard::Impl::Impl(const Config& config, Snapshot snapshot, Now now,
                 std::unique_ptr<const Policy> policy)
    : config_(config), ledger_(std::move(snapshot)), policy_(std::move(policy)) {
  if (policy_ == nullptr) policy_ = MakePolicy();
  accounts_us_ = now.uptime_us;
  const int64_t decay_step = DecayStep();
  decayed_pool_us_ = ledger_.snapshot().pool_time_us / decay_step * decay_step;
  planned_at_ = now;
  for (const auto& [name, worker] : ledger_.snapshot().workers) {
    Contact& contact = contacts_[name];
    contact.last_seen_us = worker.last_seen_us;
    contact.lease_deadline_us = now.uptime_us + config_.lease_us;
    contact.unreachable_since_us = now.uptime_us;
    if (TY_BUG(no_wait_after_restart)) {
      contact.lease_deadline_us = now.uptime_us - 20 * kMinute;
      contact.unreachable_since_us = contact.lease_deadline_us;
    }
    Touch(name);
  }
  for (const auto& [id, attempt] : ledger_.snapshot().attempts) {
    if (attempt_fsm::IsFinal(attempt.state)) continue;
    LiveAttempt& live = live_[id];
    live.charged_us = now.uptime_us;
    live.safe_since_us = now.uptime_us;
    for (const AttemptPart& part : attempt.parts) live_on_[part.worker].insert(id);
    running_[id.job] = MakeRunning(attempt, now);
    if (std::none_of(attempt.parts.begin(), attempt.parts.end(),
                     [](const AttemptPart& part) { return HoldsDevices(part.state); })) {
      live.drain_deadline_us = now.uptime_us + config_.drain_limit_us;
    }
    if (std::holds_alternative<attempt_fsm::Running>(attempt.state)) {
      live.run_since_us = now.uptime_us;
      live.started_us = now.uptime_us;
    }
  }
  for (const auto& [id, job] : ledger_.snapshot().jobs) {
    if (!job_fsm::IsFinal(job.state) && job.submission->parent_checkpoint.has_value()) {
      ++parents_[*job.submission->parent_checkpoint];
    }
    if (std::holds_alternative<job_fsm::Queued>(job.state)) EnterQueue(id, now);
  }
  for (const auto& [id, checkpoint] : ledger_.snapshot().checkpoints) {
    CountStored(checkpoint, 1);
  }
  for (const auto& [name, worker] : ledger_.snapshot().workers) {
    if (worker.scheduling == Scheduling::kDraining) DrainAttempts(name, 0, "server", now);
  }
  RefreshTimers();
}

absl::StatusOr<Reply> Yard::Impl::Apply(const SubmitJob& in, Now now) {
  TY_CHECK(in.submission != nullptr);
  const Submission& submission = *in.submission;
  if (!in.request_id.empty()) {
    const auto known = snapshot().requests.find(in.request_id);
    if (known != snapshot().requests.end() && !TY_BUG(repeat_requests)) {
      if (known->second.request_hash != in.request_hash) {
        return error::RequestIdReused(in.request_id);
      }
      return Reply{known->second.job, /*existed=*/true};
    }
  }
  if (submission.demand.count < 1 || submission.checkpoints_kept < 1) {
    return absl::InvalidArgumentError("a job needs at least one device and one kept checkpoint");
  }
  if (submission.parent_checkpoint.has_value()) {
    const CheckpointRef& parent = *submission.parent_checkpoint;
    if (snapshot().checkpoints.count(parent) == 0) {
      return error::CheckpointNotFound(CheckpointName(parent.job, parent.step));
    }
  }
  for (const Dependency& dependency : submission.dependencies) {
    if (snapshot().jobs.count(dependency.job) == 0) {
      return error::JobNotFound(JobName(dependency.job));
    }
  }
  TY_RETURN_IF_ERROR(CheckQuotas(submission, now));
  const int32_t jobs = std::max(submission.array_size, 1);
  if (submission.parent_checkpoint.has_value()) parents_[*submission.parent_checkpoint] += jobs;
  const JobId first{snapshot().next_job};
  for (int32_t i = 0; i < jobs; ++i) {
    JobRecord job;
    job.submission = in.submission;
    job.create_us = now.wall_us;
    if (submission.array_size > 0) job.array = first;
    EnterQueue(ledger_.AddJob(std::move(job)), now);
  }
  if (!in.request_id.empty() && snapshot().requests.count(in.request_id) == 0) {
    ledger_.AddRequest({in.request_id, in.request_hash, first, now.wall_us});
  }
  // One event tells of a whole array.
  ledger_.AddEvent(now.wall_us, JobName(first), "JOB_QUEUED", in.actor,
                   submission.array_size == 0
                       ? "submitted"
                       : absl::StrCat("submitted as an array of ", jobs, ", up to ",
                                      JobName(JobId{first.value + jobs - 1})));
  has_new_jobs_ = true;
  return Reply{first, /*existed=*/false};
}

// Bookkeeping of a job that has come to wait.
void Yard::Impl::EnterQueue(JobId id, Now now) {
  const JobRecord& job = ledger_.job(id);
  const Submission& submission = *job.submission;
  stale_jobs_.insert(id);
  CountQueued(submission, 1);
  for (const Dependency& dependency : submission.dependencies) {
    dependents_[dependency.job].insert(id);
  }
  // A wall clock that has jumped must not hold a failed job back for ever.
  const int64_t not_before_us = std::get<job_fsm::Queued>(job.state).not_before_us;
  int64_t left = std::min(not_before_us - now.wall_us, config_.backoff_max_us);
  if (TY_BUG(backoff_by_wall_clock)) left = not_before_us - now.wall_us;
  if (not_before_us == 0) left = StartDelay(submission, now);
  if (left > 0) wakes_.Set(id, now.uptime_us + left);
}

// Until a delayed start is to be looked at again; 0 or less: it is over.
int64_t Yard::Impl::StartDelay(const Submission& submission, Now now) const {
  return std::min(submission.not_before_us - now.wall_us, config_.wall_recheck_us);
}

void Yard::Impl::LeaveQueue(JobId id) {
  const Submission& submission = *ledger_.job(id).submission;
  stale_jobs_.insert(id);
  CountQueued(submission, -1);
  for (const Dependency& dependency : submission.dependencies) {
    const auto waiting = dependents_.find(dependency.job);
    if (waiting == dependents_.end()) continue;
    waiting->second.erase(id);
    if (waiting->second.empty()) dependents_.erase(waiting);
  }
  wakes_.Set(id, std::nullopt);
}

absl::StatusOr<Reply> Yard::Impl::Apply(const CancelJob& in, Now now) {
  TY_RETURN_IF_ERROR(StepJob(in.job, job_fsm::Cancel{}, in.actor, in.reason, now));
  return Reply{in.job, false};
}

absl::StatusOr<Reply> Yard::Impl::Apply(const SuspendJob& in, Now now) {
  TY_RETURN_IF_ERROR(StepJob(in.job, job_fsm::Suspend{}, in.actor, in.reason, now));
  return Reply{in.job, false};
}

absl::StatusOr<Reply> Yard::Impl::Apply(const ResumeJob& in, Now now) {
  TY_RETURN_IF_ERROR(StepJob(in.job, job_fsm::Resume{}, in.actor, "resumed", now));
  return Reply{in.job, false};
}

absl::StatusOr<Reply> Yard::Impl::Apply(const CordonWorker& in, Now now) {
  TY_RETURN_IF_ERROR(StepScheduling(in.worker, worker_fsm::Cordon{}, in.actor, in.reason, now));
  return Reply{};
}

absl::StatusOr<Reply> Yard::Impl::Apply(const UncordonWorker& in, Now now) {
  TY_RETURN_IF_ERROR(StepScheduling(in.worker, worker_fsm::Uncordon{}, in.actor, "", now));
  return Reply{};
}

absl::StatusOr<Reply> Yard::Impl::Apply(const DrainWorker& in, Now now) {
  TY_RETURN_IF_ERROR(StepScheduling(in.worker, worker_fsm::Drain{}, in.actor, in.reason, now));
  DrainAttempts(in.worker, in.within_us, in.actor, now);
  return Reply{};
}

absl::StatusOr<Reply> Yard::Impl::Apply(const DeclareWorkerLost& in, Now now) {
  const auto worker = snapshot().workers.find(in.worker);
  if (worker == snapshot().workers.end()) return error::WorkerNotFound(WorkerName(in.worker));
  if (std::holds_alternative<worker_fsm::Active>(worker->second.state)) {
    return error::WorkerNotUnreachable(WorkerName(in.worker));
  }
  if (std::holds_alternative<worker_fsm::Gone>(worker->second.state)) return Reply{};
  const std::string message =
      absl::StrCat("declared lost", in.reason.empty() ? "" : ": ", in.reason);
  LoseParts(in.worker, message, now, [](JobId) { return true; });
  StepWorker(in.worker, worker_fsm::GaveUp{now.wall_us}, in.actor, message, now);
  return Reply{};
}

absl::StatusOr<Reply> Yard::Impl::Apply(const CommitCheckpoint& in, Now now) {
  TY_RETURN_IF_ERROR(CheckCheckpointWriter(in.session, in.attempt, in.fencing_token));
  const CheckpointRef id{in.attempt.job, in.step};
  if (snapshot().checkpoints.count(id) > 0) return Reply{id.job, /*existed=*/true};
  CheckpointRecord checkpoint;
  checkpoint.id = id;
  checkpoint.attempt = in.attempt.number;
  checkpoint.files = in.files;
  std::sort(checkpoint.files.begin(), checkpoint.files.end(),
            [](const CheckpointFile& a, const CheckpointFile& b) { return a.name < b.name; });
  checkpoint.create_us = now.wall_us;
  checkpoint.evaluation = in.evaluation;
  CountStored(checkpoint, 1);
  ledger_.AddCheckpoint(std::move(checkpoint));
  const std::string actor = absl::StrCat("worker:", *WorkerOfSession(in.session));
  ledger_.AddEvent(now.wall_us, JobName(id.job), "CHECKPOINT_COMMITTED", actor,
                   absl::StrCat("checkpoint at step ", id.step, " of attempt ", in.attempt.number));
  ledger_.EditJob(id.job);  // its newest checkpoint is shown with it
  CleanCheckpoints(id.job, actor, now);
  if (const auto live = live_.find(in.attempt); live != live_.end()) {
    live->second.safe_since_us = now.uptime_us;
    if (live->second.stop.has_value()) FireStop(in.attempt, "scheduler", now);
  }
  return Reply{id.job, /*existed=*/false};
}

int64_t Yard::Impl::LastSeen(const std::string& worker) const {
  const auto found = contacts_.find(worker);
  return found == contacts_.end() ? 0 : found->second.last_seen_us;
}

const Yard::Impl::Contact* Yard::Impl::FindSession(absl::string_view session,
                                                   std::string* worker) const {
  const auto found = sessions_.find(std::string(session));
  if (found == sessions_.end()) return nullptr;
  if (worker != nullptr) *worker = found->second;
  return &contacts_.at(found->second);
}

absl::StatusOr<std::string> Yard::Impl::WorkerOfSession(absl::string_view session) const {
  std::string worker;
  if (FindSession(session, &worker) == nullptr) return error::UnknownSession(session);
  return worker;
}

absl::Status Yard::Impl::CheckStream(absl::string_view session, AttemptId attempt,
                                     int64_t token) const {
  TY_ASSIGN_OR_RETURN(const std::string worker, WorkerOfSession(session));
  const auto found = snapshot().attempts.find(attempt);
  if (found == snapshot().attempts.end() || FindPart(found->second, worker) == nullptr) {
    return error::AttemptNotFound(AttemptName(attempt));
  }
  if (found->second.fencing_token != token) {
    return error::StaleFencingToken(JobName(attempt.job), token, found->second.fencing_token);
  }
  return absl::OkStatus();
}

absl::Status Yard::Impl::CheckCheckpointWriter(absl::string_view session, AttemptId attempt,
                                               int64_t token) const {
  TY_RETURN_IF_ERROR(CheckStream(session, attempt, token));
  const int64_t current = ledger_.job(attempt.job).fencing_token;
  if (TY_BUG(ignore_the_token)) return absl::OkStatus();
  if (token != current) return error::StaleFencingToken(JobName(attempt.job), token, current);
  return absl::OkStatus();
}

// The surface.

Yard::Yard(const Config& config, Snapshot snapshot, Now now, std::unique_ptr<const Policy> policy)
    : impl_(std::make_unique<Impl>(config, std::move(snapshot), now, std::move(policy))) {}
Yard::Yard(Yard&&) noexcept = default;
Yard& Yard::operator=(Yard&&) noexcept = default;
Yard::~Yard() = default;

absl::StatusOr<Reply> Yard::Apply(const Input& input, Now now) {
  return std::visit([this, now](const auto& in) { return impl_->Apply(in, now); }, input);
}

Turn Yard::Settle(Now now) {
  return impl_->Settle(now);
}
std::optional<int64_t> Yard::NextDeadline() const {
  return impl_->NextDeadline();
}
const Config& Yard::config() const {
  return impl_->config();
}
const Snapshot& Yard::snapshot() const {
  return impl_->snapshot();
}

namespace {

template <typename Map, typename Key>
const typename Map::mapped_type* FindIn(const Map& map, const Key& key) {
  const auto found = map.find(key);
  return found == map.end() ? nullptr : &found->second;
}

}  // namespace

const JobRecord* Yard::FindJob(JobId job) const {
  return FindIn(snapshot().jobs, job);
}
const AttemptRecord* Yard::FindAttempt(AttemptId attempt) const {
  return FindIn(snapshot().attempts, attempt);
}
const WorkerRecord* Yard::FindWorker(absl::string_view worker) const {
  return FindIn(snapshot().workers, std::string(worker));
}
const CheckpointRecord* Yard::FindCheckpoint(const CheckpointRef& checkpoint) const {
  return FindIn(snapshot().checkpoints, checkpoint);
}

std::vector<const CheckpointRecord*> Yard::CheckpointsOf(JobId job) const {
  std::vector<const CheckpointRecord*> found;
  const auto& all = snapshot().checkpoints;
  for (auto it = all.lower_bound({job, std::numeric_limits<int64_t>::min()});
       it != all.end() && it->first.job == job; ++it) {
    found.push_back(&it->second);
  }
  return found;
}

std::vector<std::string> Yard::QueueReasons(JobId job) const {
  return impl_->QueueReasons(job);
}
std::vector<JobId> Yard::QueueFront() const {
  return impl_->QueueFront();
}
Explanation Yard::Explain(JobId job, Now now) const {
  return impl_->Explain(job, now);
}
Explanation Yard::Preview(const Submission& submission, Now now) const {
  return impl_->Preview(submission, now);
}
std::map<UsageKey, UsageRecord> Yard::Usage(Now now) const {
  return impl_->Usage(now);
}
std::map<std::string, DeviceUsage> Yard::UsageOn(absl::string_view worker) const {
  return impl_->UsageOn(std::string(worker));
}

int64_t Yard::LastSeen(absl::string_view worker) const {
  return impl_->LastSeen(std::string(worker));
}
std::map<std::string, AttemptId> Yard::HoldersOn(absl::string_view worker) const {
  return impl_->HoldersOn(std::string(worker));
}
std::optional<AttemptId> Yard::HolderOf(absl::string_view worker, absl::string_view device) const {
  const auto holders = HoldersOn(worker);
  const auto found = holders.find(std::string(device));
  return found == holders.end() ? std::nullopt : std::optional<AttemptId>(found->second);
}
std::vector<DesiredAttempt> Yard::DesiredFor(absl::string_view worker) const {
  return impl_->DesiredFor(std::string(worker));
}
int64_t Yard::DesiredRevision(absl::string_view worker) const {
  return impl_->DesiredRevision(std::string(worker));
}
absl::StatusOr<std::string> Yard::WorkerOfSession(absl::string_view session) const {
  return impl_->WorkerOfSession(session);
}
absl::Status Yard::CheckStream(absl::string_view session, AttemptId attempt, int64_t token) const {
  return impl_->CheckStream(session, attempt, token);
}
absl::Status Yard::CheckCheckpointWriter(absl::string_view session, AttemptId attempt,
                                         int64_t token) const {
  return impl_->CheckCheckpointWriter(session, attempt, token);
}

}  // namespace trainyard::core
