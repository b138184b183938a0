// Implements the interface of the yard: the course of a turn, and the queries.
#include "server/core/yard/yard.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "server/core/yard/orders.h"
#include "server/core/yard/stepper.h"
#include "server/core/yard/timers.h"

namespace trainyard::core {
namespace {

// The number of passes in one turn. The second sees what the first has set free. What a third might
// find waits for the next turn.
constexpr int kPassesMax = 2;

template <typename Map, typename Key>
const typename Map::mapped_type* FindIn(const Map& map, const Key& key) {
  const auto found = map.find(key);
  return found == map.end() ? nullptr : &found->second;
}

}  // namespace

// Leases and deadlines are not stored. After a start, every worker has one lease to come back, and
// every deadline starts again.
Yard::Yard(const Config& config, Snapshot snapshot, Now now, std::unique_ptr<const Policy> policy)
    : state_(config, std::move(snapshot), now), policy_(std::move(policy)), planned_at_(now) {
  if (policy_ == nullptr) policy_ = MakePolicy();
  for (const auto& [name, worker] : state_.snapshot().workers) {
    state_.contacts.Expect(worker, now);
    state_.changes.Touch(name);
  }
  FindLiveAttempts(now);
  FindWaitingJobs(now);
  Stepper stepper(state_, now);
  for (const auto& [id, checkpoint] : state_.snapshot().checkpoints) {
    stepper.CountStored(checkpoint, 1);
  }
  for (const auto& [name, worker] : state_.snapshot().workers) {
    if (worker.scheduling == Scheduling::kDraining) stepper.DrainAttempts(name, 0, "server");
  }
  RefreshTimers(state_);
}

void Yard::FindLiveAttempts(Now now) {
  for (const auto& [id, attempt] : state_.snapshot().attempts) {
    if (attempt_fsm::IsFinal(attempt.state)) continue;
    LiveAttempt& live = state_.live.Add(attempt);
    live.placed_us = now.uptime_us;
    live.charged_us = now.uptime_us;
    live.safe_since_us = now.uptime_us;
    state_.changes.jobs.insert(id.job);
    if (std::none_of(attempt.parts.begin(), attempt.parts.end(),
                     [](const AttemptPart& part) { return HoldsDevices(part.state); })) {
      live.drain_deadline_us = now.uptime_us + state_.config.drain_limit_us;
    }
    if (std::holds_alternative<attempt_fsm::Running>(attempt.state)) {
      live.run_since_us = now.uptime_us;
      live.started_us = now.uptime_us;
    }
  }
}

void Yard::FindWaitingJobs(Now now) {
  Stepper stepper(state_, now);
  for (const auto& [id, submission] : state_.snapshot().kept_submissions) {
    state_.lineage.Add(id, submission);
  }
  for (const auto& [id, job] : state_.snapshot().jobs) {
    state_.lineage.Add(job.array == JobId{} ? id : job.array, *job.submission);
    if (std::holds_alternative<job_fsm::Succeeded>(job.state)) {
      state_.speeds.Note(id, job.submission->work, job.device_time_us);
    }
    if (!job_fsm::IsFinal(job.state)) {
      for (const CheckpointRef& start : job.submission->NeededCheckpoints()) {
        ++state_.parents[start];
      }
    }
    if (std::holds_alternative<job_fsm::Queued>(job.state)) stepper.EnterQueue(id);
  }
}

absl::StatusOr<Reply> Yard::Apply(const Input& input, Now now) {
  return std::visit([this, now](const auto& in) { return Take(in, now); }, input);
}

Turn Yard::Settle(Now now) {
  FireTimers(state_, now);
  state_.accounts.Keep(state_.ledger, state_.live, now);
  const auto next_pass = NextPass();
  bool plan_again =
      state_.changes.plan_again || (next_pass.has_value() && *next_pass <= now.uptime_us);
  for (int i = 0; i < kPassesMax && plan_again; ++i) plan_again = MakePlan(now);
  state_.changes.plan_again = false;
  RefreshTimers(state_);
  GiveOrders();
  turn_.reasons_changed.merge(std::exchange(state_.changes.contacts, {}));
  turn_.delta = state_.ledger.Take();
  return std::exchange(turn_, Turn{});
}

void Yard::GiveOrders() {
  for (const std::string& worker : state_.changes.touched_workers) {
    if (state_.contacts.GiveOrders(worker, core::DesiredFor(state_, worker))) {
      turn_.desired_changed.insert(worker);
    }
  }
  state_.changes.touched_workers.clear();
}

std::optional<int64_t> Yard::NextDeadline() const {
  std::optional<int64_t> next = NextPass();
  TakeEarlier(next, NextTimer(state_));
  return next;
}

// The functions that read.

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
  for (auto it = all.lower_bound({job, 0}); it != all.end() && it->first.job == job; ++it) {
    found.push_back(&it->second);
  }
  return found;
}

std::map<UsageKey, UsageRecord> Yard::Usage(Now now) const {
  return Accounts::Usage(state_.ledger, state_.live, now);
}

int64_t Yard::LastSeen(absl::string_view worker) const {
  const Contact* contact = state_.contacts.Find(worker);
  return contact == nullptr ? 0 : contact->last_seen_wall_us;
}

std::map<std::string, std::string> Yard::UsageOn(absl::string_view worker) const {
  const Contact* contact = state_.contacts.Find(worker);
  const WorkerRecord* record = FindWorker(worker);
  // Old numbers of a host that is out of contact would only mislead.
  if (contact == nullptr || record == nullptr ||
      !std::holds_alternative<worker_fsm::Active>(record->state)) {
    return {};
  }
  return contact->usage;
}

const WorkerDatasets* Yard::DatasetsOn(absl::string_view worker) const {
  const Contact* contact = state_.contacts.Find(worker);
  return contact == nullptr ? nullptr : contact->datasets.get();
}

HostAmount Yard::HeldOn(absl::string_view worker) const {
  HostAmount held;
  for (const auto& [attempt, ranks] : RanksOn(state_, std::string(worker))) {
    for (const RankPlacement& rank : ranks) held += rank.held;
  }
  return held;
}

std::map<std::string, AttemptId> Yard::HoldersOn(absl::string_view worker) const {
  return core::HoldersOn(state_, std::string(worker));
}

std::vector<DesiredAttempt> Yard::DesiredFor(absl::string_view worker) const {
  return core::DesiredFor(state_, std::string(worker));
}

int64_t Yard::DesiredRevision(absl::string_view worker) const {
  const Contact* contact = state_.contacts.Find(worker);
  return contact == nullptr ? 0 : contact->desired_revision;
}

absl::StatusOr<std::string> Yard::WorkerOfSession(absl::string_view session) const {
  const std::string* worker = state_.contacts.WorkerOf(session);
  if (worker == nullptr) return error::UnknownSession(session);
  return *worker;
}

absl::Status Yard::CheckStream(absl::string_view session, AttemptId attempt, int64_t token) const {
  TY_ASSIGN_OR_RETURN(const std::string worker, WorkerOfSession(session));
  const AttemptRecord* record = FindAttempt(attempt);
  if (record == nullptr || FindPart(*record, worker) == nullptr) {
    return error::AttemptNotFound(AttemptName(attempt));
  }
  if (record->fencing_token != token) {
    return error::StaleFencingToken(JobName(attempt.job), token, record->fencing_token);
  }
  return absl::OkStatus();
}

absl::Status Yard::CheckCheckpointWriter(absl::string_view session, AttemptId attempt,
                                         int64_t token) const {
  TY_RETURN_IF_ERROR(CheckStream(session, attempt, token));
  const int64_t current = state_.ledger.job(attempt.job).fencing_token;
  if (token != current) return error::StaleFencingToken(JobName(attempt.job), token, current);
  return absl::OkStatus();
}

}  // namespace trainyard::core
