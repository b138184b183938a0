// Placement: the pictures of pool, queue and running jobs that a pass looks at, kept up to date by
// what has changed, and what becomes of its decisions.
#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/planted_bug.h"
#include "server/core/yard/yard_impl.h"

namespace trainyard::core {
namespace {

// "2026-11-21 12:03:07 UTC" is more than a queue needs: "12:03:07 UTC".
std::string TimeOfDay(int64_t wall_us) {
  const int64_t second = wall_us / kSecond % (24 * 3600);
  return absl::StrFormat("%02d:%02d:%02d UTC", second / 3600, second / 60 % 60, second % 60);
}

std::string LowerCase(absl::string_view word) {
  std::string text(word);
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c == '_') c = ' ';
  }
  return text;
}

}  // namespace

PassInput Yard::Impl::MakeInput(Now now) const {
  return {config_,
          pool_,
          queue_,
          running_,
          snapshot().usage,
          snapshot().quotas,
          snapshot().reservations,
          now};
}

// Why the worker gets no ranks now; empty where it does.
std::string Yard::Impl::WhyNoRanks(const WorkerRecord& worker) const {
  const Contact& contact = contacts_.at(worker.name);
  if (std::holds_alternative<worker_fsm::Unreachable>(worker.state) &&
      !TY_BUG(place_on_unreachable)) {
    return "is unreachable";
  }
  if (!contact.synced) return "has not reported yet what it runs";
  if (RunsUnknown(contact)) return "runs an attempt that this server does not know";
  if (worker.scheduling == Scheduling::kEligible) return "";
  return absl::StrCat("is ", LowerCase(Text(worker.scheduling)));
}

PoolWorker Yard::Impl::MakePoolWorker(const WorkerRecord& record) const {
  PoolWorker worker;
  worker.name = record.name;
  worker.why_not = WhyNoRanks(record);
  worker.takes_ranks = worker.why_not.empty();
  worker.labels = record.labels;
  const std::map<std::string, AttemptId> holders = HoldersOn(record.name);
  for (const DeviceRecord& device : record.devices) {
    PoolDevice& slot = worker.devices.emplace_back();
    slot.name = device.name;
    slot.type = device.type;
    slot.memory_bytes = device.memory_bytes;
    slot.island = device.island;
    slot.usable = device.health == DeviceHealth::kOk && device.quarantine.empty();
    if (!slot.usable) {
      const bool foreign = device.health == DeviceHealth::kUnmanagedUse;
      const std::string& why = device.quarantine.empty() ? device.health_reason : device.quarantine;
      slot.why_not = foreign ? "is used by a process that is not ours" : "is quarantined";
      if (!why.empty()) absl::StrAppend(&slot.why_not, ": ", why);
    }
    const auto holder = holders.find(device.name);
    if (holder != holders.end()) slot.holder = holder->second.job;
    const auto claim = claims_.find({record.name, device.name});
    if (claim != claims_.end()) slot.claim = claim->second;
    const auto reserved = reserved_.find({record.name, device.name});
    if (reserved != reserved_.end()) slot.reservation = reserved->second;
  }
  return worker;
}

void Yard::Impl::RefreshPool() {
  for (const std::string& name : stale_workers_) {
    const auto slot = std::lower_bound(
        pool_.begin(), pool_.end(), name,
        [](const PoolWorker& worker, const std::string& wanted) { return worker.name < wanted; });
    const bool is_there = slot != pool_.end() && slot->name == name;
    const WorkerRecord& record = ledger_.worker(name);
    if (std::holds_alternative<worker_fsm::Gone>(record.state)) {
      if (is_there) pool_.erase(slot);
    } else if (is_there) {
      *slot = MakePoolWorker(record);
    } else {
      pool_.insert(slot, MakePoolWorker(record));
    }
  }
  stale_workers_.clear();
}

// From the spec alone.
QueuedJob Yard::Impl::MakeQueued(const Submission& submission) const {
  QueuedJob job;
  job.demand = submission.demand;
  job.priority = submission.priority;
  job.preemptible = submission.preemptible;
  job.user = submission.user;
  job.project = submission.project;
  job.reservation = submission.reservation;
  job.reservations = ReservationsOf(submission);
  job.expected_us = submission.time_limit_us;
  return job;
}

QueuedJob Yard::Impl::MakeQueued(JobId id) const {
  const JobRecord& record = ledger_.job(id);
  const Submission& submission = *record.submission;
  QueuedJob job = MakeQueued(submission);
  job.id = id;
  job.array = record.array;
  job.array_parallel = submission.array_parallel;
  job.waiting_since_us = record.create_us;
  if (submission.time_limit_us > 0) {
    job.expected_us = std::max(submission.time_limit_us - record.run_time_us, kSecond);
  }
  job.holds = HoldsOf(record);
  if (TY_BUG(lose_the_place) && record.failures > 0) --job.priority;
  return job;
}

std::vector<std::string> Yard::Impl::HoldsOf(const JobRecord& job) const {
  std::vector<std::string> holds;
  const auto& state = std::get<job_fsm::Queued>(job.state);
  if (wakes_.Has(job.id)) {
    if (state.not_before_us > 0) {
      const FailureClass after = state.last_failure.has_value() ? state.last_failure->failure_class
                                                                : FailureClass::kTransient;
      holds.push_back(absl::StrCat("backoff until ", TimeOfDay(state.not_before_us), " after a ",
                                   LowerCase(Text(after)), " failure"));
    } else {
      holds.push_back(
          absl::StrCat("is not to start before ", TimeOfDay(job.submission->not_before_us)));
    }
  }
  for (const Dependency& dependency : job.submission->dependencies) {
    AddDependencyHold(dependency, holds);
  }
  return holds;
}

void Yard::Impl::AddDependencyHold(const Dependency& dependency,
                                   std::vector<std::string>& holds) const {
  const auto found = snapshot().jobs.find(dependency.job);
  if (found == snapshot().jobs.end()) return;  // deleted: it has ended
  const JobState& other = found->second.state;
  const std::string name = JobName(dependency.job);
  if (!job_fsm::IsFinal(other)) {
    holds.push_back(absl::StrCat("waits for job ", name, " to ", dependency.ok ? "succeed" : "end",
                                 "; it is ", LowerCase(job_fsm::Name(other))));
  } else if (dependency.ok && !std::holds_alternative<job_fsm::Succeeded>(other)) {
    holds.push_back(absl::StrCat("job ", name, " has ended as ", LowerCase(job_fsm::Name(other)),
                                 "; this job was to start after its success and never will: "
                                 "cancel it, or clone it without after_ok"));
  }
}

void Yard::Impl::RefreshQueue() {
  for (const JobId& id : stale_jobs_) {
    if (std::holds_alternative<job_fsm::Queued>(ledger_.job(id).state)) {
      queue_.Put(MakeQueued(id));
    } else {
      queue_.Remove(id);
    }
  }
  stale_jobs_.clear();
}

// What does not change while the attempt lives.
RunningJob Yard::Impl::MakeRunning(const AttemptRecord& attempt, Now now) const {
  const JobRecord& record = ledger_.job(attempt.id.job);
  const Submission& submission = *record.submission;
  RunningJob job;
  job.id = attempt.id.job;
  job.array = record.array;
  job.demand = submission.demand;
  job.priority = submission.priority;
  job.user = submission.user;
  job.project = submission.project;
  job.ranks = attempt.ranks;
  job.since_us = now.uptime_us;
  job.reservations = ReservationsOf(submission);
  job.reservation = submission.reservation;
  return job;
}

void Yard::Impl::RefreshRunning(Now now) {
  for (auto& [id, job] : running_) {
    const JobRecord& record = ledger_.job(id);
    const LiveAttempt& live = live_.at({id, record.attempt});
    const bool runs = std::holds_alternative<job_fsm::Running>(record.state);
    job.guest = queue_.Find(live.guest_of) != nullptr;
    job.stops = live.stop.has_value() || std::holds_alternative<job_fsm::Stopping>(record.state);
    job.end_us = ExpectedEnd(record, live, now);
    job.at_risk_us = now.uptime_us - live.safe_since_us;
    job.may_preempt = runs && !job.stops && record.submission->preemptible &&
                      live.run_since_us.has_value() &&
                      (job.guest || now.uptime_us - live.started_us >= config_.min_runtime_us);
  }
}

// By the steps left at the measured rate; else by the time limit; whichever comes first.
std::optional<int64_t> Yard::Impl::ExpectedEnd(const JobRecord& job, const LiveAttempt& live,
                                               Now now) const {
  if (std::holds_alternative<job_fsm::Stopping>(job.state)) {
    return now.uptime_us + config_.checkpoint_grace_us;
  }
  if (live.stop.has_value()) return live.stop->deadline_us + config_.checkpoint_grace_us;
  std::optional<int64_t> end;
  if (job.submission->time_limit_us > 0) {
    end =
        live.run_since_us.value_or(now.uptime_us) + job.submission->time_limit_us - job.run_time_us;
  }
  if (live.end_by_speed_us > 0 && (!end.has_value() || live.end_by_speed_us < *end)) {
    end = live.end_by_speed_us;
  }
  return end;
}

// True where another pass would find more: claims have turned out to be idle.
bool Yard::Impl::MakePlan(Now now) {
  planned_at_ = now;
  has_new_jobs_ = false;
  RefreshReservations(now);
  RefreshQueue();
  RefreshPool();
  RefreshRunning(now);
  const Plan plan = policy_->MakePlan(MakeInput(now));
  for (const GangPlacement& placement : plan.placements) {
    TY_CHECK_OK(CheckPlacement(pool_, *queue_.Find(placement.job), placement.ranks));
    Hold(pool_, placement.job, placement.ranks);
    StartAttempt(placement, now);
  }
  for (const Preemption& preemption : plan.preemptions) Nominate(preemption, now);
  for (const Growth& growth : plan.growths) StartGrowth(growth, now);
  const bool again = WithdrawIdleClaims(now);
  record_ = plan.record;
  front_ = plan.front;
  RefreshQueue();  // what was placed is gone from it
  const PassInput input = MakeInput(now);
  for (const JobId& id : plan.front) {
    if (queue_.Find(id) == nullptr) continue;
    std::vector<std::string> reasons = record_->Reasons(input, id);
    std::vector<std::string>& known = reasons_[id];
    if (known == reasons) continue;
    known = std::move(reasons);
    turn_.reasons_changed.insert(id);
  }
  return again;
}

std::vector<std::string> Yard::Impl::QueueReasons(JobId job) const {
  const auto known = reasons_.find(job);
  if (known != reasons_.end()) return known->second;
  if (record_ == nullptr || queue_.Find(job) == nullptr) return {};
  return record_->Reasons(MakeInput(planned_at_), job);
}

std::vector<JobId> Yard::Impl::QueueFront() const {
  std::vector<JobId> front;
  for (const JobId& id : front_) {
    if (queue_.Find(id) != nullptr) front.push_back(id);
  }
  return front;
}

Explanation Yard::Impl::Explain(JobId job, Now now) const {
  const QueuedJob* queued = queue_.Find(job);
  if (queued == nullptr || record_ == nullptr) return {};
  return record_->Explain(MakeInput(now), *queued);
}

Explanation Yard::Impl::Preview(const Submission& submission, Now now) const {
  const PassInput input = MakeInput(now);
  const auto record = record_ != nullptr ? record_ : policy_->MakePlan(input).record;
  QueuedJob job = MakeQueued(submission);
  job.id = JobId{std::numeric_limits<int64_t>::max()};
  job.waiting_since_us = now.wall_us;
  for (const Dependency& dependency : submission.dependencies) {
    AddDependencyHold(dependency, job.holds);
  }
  if (submission.not_before_us > now.wall_us) {
    job.holds.push_back(
        absl::StrCat("is not to start before ", TimeOfDay(submission.not_before_us)));
  }
  return record->Explain(input, job);
}

// The token grows in the transaction that allocates the devices.
void Yard::Impl::StartAttempt(const GangPlacement& placement, Now now) {
  const JobId id = placement.job;
  JobRecord& job = ledger_.EditJob(id);
  ++job.attempt;
  ++job.fencing_token;
  AttemptRecord attempt;
  attempt.id = {id, job.attempt};
  attempt.fencing_token = job.fencing_token;
  attempt.ranks = placement.ranks;
  std::map<std::string, std::string> devices;  // by worker, as text
  for (const RankPlacement& rank : attempt.ranks) {
    std::string& text = devices[rank.worker];
    absl::StrAppend(&text, text.empty() ? "" : ",", rank.device);
  }
  std::string where;
  for (const auto& [worker, text] : devices) {
    attempt.parts.push_back({worker, PartState::kAssigned, {}});
    live_on_[worker].insert(attempt.id);
    absl::StrAppend(&where, where.empty() ? "" : "; ", worker, ": ", text);
  }
  attempt.resume_from = ResumePoint(job);
  attempt.create_us = now.wall_us;
  job.worker_version = ledger_.worker(attempt.ranks.front().worker).version;
  LiveAttempt& live = live_[attempt.id];
  live.guest_of = placement.guest_of;
  live.charged_us = now.uptime_us;
  live.safe_since_us = now.uptime_us;
  TouchWorkersOf(attempt);
  DropClaims(id);
  running_[id] = MakeRunning(attempt, now);
  const AttemptId attempt_id = attempt.id;
  std::string from;
  if (attempt.resume_from.has_value()) {
    from = absl::StrCat(", from ",
                        CheckpointName(attempt.resume_from->job, attempt.resume_from->step));
  }
  ledger_.AddAttempt(std::move(attempt));
  ledger_.AddEvent(
      now.wall_us, AttemptName(attempt_id), "ATTEMPT_PLACED", "scheduler",
      absl::StrCat("on ", where, from,
                   placement.guest_of == JobId{}
                       ? ""
                       : absl::StrCat(", as a guest of ", JobName(placement.guest_of))));
  TY_CHECK_OK(StepJob(id, job_fsm::Placed{}, "scheduler",
                      absl::StrCat("attempt ", attempt_id.number, " placed"), now));
}

}  // namespace trainyard::core
