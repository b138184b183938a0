// Draws the pool, the queue and the running jobs from the records.
#include "server/core/yard/picture.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/core/yard/orders.h"

namespace trainyard::core {
namespace {

// Returns "12:03:07 UTC" for "2026-11-21 12:03:07 UTC", because the queue needs no more.
std::string TimeOfDay(int64_t wall_us) {
  const int64_t second = wall_us / kSecond % (int64_t{24} * 3600);
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

// Returns why the worker gets no ranks now, or an empty text if it gets some.
std::string WhyNoRanks(const YardState& state, const WorkerRecord& worker) {
  const Contact& contact = state.contacts.of(worker.name);
  if (std::holds_alternative<worker_fsm::Unreachable>(worker.state)) return "is unreachable";
  if (!contact.synced) return "has not reported yet what it runs";
  if (RunsUnknown(state.snapshot(), worker.name, contact))
    return "runs an attempt that this server does not know";
  if (contact.leaves) return "is being stopped";
  if (worker.scheduling == Scheduling::kEligible) return "";
  return absl::StrCat("is ", LowerCase(Text(worker.scheduling)));
}

PoolWorker MakePoolWorker(const YardState& state, const WorkerRecord& record) {
  PoolWorker worker;
  worker.name = record.name;
  worker.why_not = WhyNoRanks(state, record);
  worker.takes_ranks = worker.why_not.empty();
  worker.traits = TraitsOf(record, state.contacts.of(record.name).datasets.get());
  worker.users = state.contacts.of(record.name).users;
  worker.host = record.host;
  worker.device_share = DeviceShare(record);
  std::map<std::string, std::pair<JobId, HostAmount>> holders;
  for (const auto& [attempt, ranks] : RanksOn(state, record.name)) {
    for (const RankPlacement& rank : ranks) {
      if (rank.device.empty()) {
        worker.seats.push_back({attempt.job, rank.held});
      } else {
        holders[rank.device] = {attempt.job, rank.held};
      }
    }
  }
  if (state.stops.has_claims()) {
    for (const auto& [key, job] : state.stops.claims()) {
      if (key.first == record.name && SeatOwner(key.second) != JobId{}) {
        worker.claimed_seats.push_back(job);
      }
    }
  }
  for (const DeviceRecord& device : record.devices) {
    PoolDevice& shown = worker.devices.emplace_back();
    shown.name = device.name;
    shown.type = device.type;
    shown.memory_bytes = device.memory_bytes;
    shown.island = device.island;
    shown.bf16 = device.bf16;
    shown.usable = device.health == DeviceHealth::kOk && device.quarantine.empty();
    if (!shown.usable) {
      const bool foreign = device.health == DeviceHealth::kUnmanagedUse;
      const std::string& why = device.quarantine.empty() ? device.health_reason : device.quarantine;
      shown.why_not = foreign ? "is used by a process that is not ours" : "is quarantined";
      if (!why.empty()) absl::StrAppend(&shown.why_not, ": ", why);
    }
    const auto holder = holders.find(device.name);
    if (holder != holders.end()) {
      std::tie(shown.holder, shown.held) = holder->second;
      holders.erase(holder);
    }
    shown.share = TraitsOf(record, device).share;
    const DeviceKey key{record.name, device.name};
    shown.claim = state.stops.ClaimOf(key);
    const std::string* reservation = state.reservations.On(key);
    if (reservation != nullptr) shown.reservation = *reservation;
  }
  // A rank whose device the worker no longer lists holds its part of the host until it ends.
  for (const auto& [device, holder] : holders) {
    worker.seats.push_back({holder.first, holder.second});
  }
  return worker;
}

// Fills in what depends only on the spec.
QueuedJob MakeQueued(const YardState& state, const Submission& submission) {
  QueuedJob job;
  job.demand = submission.demand;
  job.priority = submission.priority;
  job.preemptible = submission.preemptible;
  job.user = submission.user;
  if (state.contacts.Names(submission.user)) job.named_user = submission.user;
  job.project = submission.project;
  job.reservation = submission.reservation;
  job.reservations = ReservationsOf(state.snapshot(), submission);
  job.expected_us = submission.time_limit_us;
  job.work = submission.work;
  return job;
}

void AddDependencyHold(const Snapshot& snapshot, const Dependency& dependency, QueuedJob& job) {
  const auto found = snapshot.jobs.find(dependency.job);
  if (found == snapshot.jobs.end()) return;  // deleted, so it has ended
  const JobState& other = found->second.state;
  const std::string name = JobName(dependency.job);
  if (!job_fsm::IsFinal(other)) {
    job.holds.push_back(absl::StrCat("waits for job ", name, " to ",
                                     dependency.ok ? "succeed" : "end", "; it is ",
                                     LowerCase(job_fsm::Name(other))));
    job.release.after.push_back(dependency.job);
    job.release.needs_success |= dependency.ok;
  } else if (dependency.ok && !std::holds_alternative<job_fsm::Succeeded>(other)) {
    job.holds.push_back(absl::StrCat(
        "job ", name, " has ended as ", LowerCase(job_fsm::Name(other)),
        "; this job was to start after its success and never will: cancel it, or clone it without "
        "after_ok"));
    job.release.never_comes = true;
  }
}

void AddBeginHold(int64_t begin_us, QueuedJob& job) {
  job.holds.push_back(absl::StrCat("is not to start before ", TimeOfDay(begin_us)));
  job.release.not_before_us = begin_us;
}

// Says why the job may not be placed now, and when it may.
void AddHolds(const YardState& yard, const JobRecord& record, QueuedJob& job) {
  const auto& state = std::get<job_fsm::Queued>(record.state);
  if (yard.wakes.Has(record.id)) {
    if (state.not_before_us > 0) {
      const FailureClass after = state.last_failure.has_value() ? state.last_failure->failure_class
                                                                : FailureClass::kTransient;
      job.holds.push_back(absl::StrCat("backoff until ", TimeOfDay(state.not_before_us),
                                       " after a ", LowerCase(Text(after)), " failure"));
      job.release.not_before_us = state.not_before_us;
    } else {
      AddBeginHold(record.submission->not_before_us, job);
    }
  }
  for (const Dependency& dependency : record.submission->dependencies) {
    AddDependencyHold(yard.snapshot(), dependency, job);
  }
}

QueuedJob MakeQueued(const YardState& state, const JobRecord& record) {
  const Submission& submission = *record.submission;
  QueuedJob job = MakeQueued(state, submission);
  job.id = record.id;
  job.demand = DemandOf(record);
  job.array = record.array;
  job.array_parallel = submission.array_parallel;
  job.waiting_since_us = record.create_us;
  if (submission.time_limit_us > 0) {
    job.expected_us = std::max(submission.time_limit_us - record.run_time_us, kSecond);
  }
  job.has_room_made = state.stops.HasRoomMade(record.id);
  AddHolds(state, record, job);
  return job;
}

// Fills in what does not change while the attempt lives.
RunningJob MakeRunning(const YardState& state, const AttemptRecord& attempt) {
  const JobRecord& record = state.ledger.job(attempt.id.job);
  const Submission& submission = *record.submission;
  RunningJob job;
  job.id = attempt.id.job;
  job.array = record.array;
  job.demand = DemandOf(record);
  job.priority = submission.priority;
  job.user = submission.user;
  job.project = submission.project;
  job.ranks = attempt.ranks;
  job.since_us = state.live.at(attempt.id).placed_us;
  job.reservations = ReservationsOf(state.snapshot(), submission);
  job.reservation = submission.reservation;
  return job;
}

// The end is expected from the steps left at the measured rate, or from the time limit, whichever
// comes first.
std::optional<int64_t> ExpectedEnd(const YardState& state, const JobRecord& job,
                                   const LiveAttempt& live, const PendingStop* stop, Now now) {
  if (std::holds_alternative<job_fsm::Stopping>(job.state)) {
    return now.uptime_us + state.config.checkpoint_grace_us;
  }
  if (stop != nullptr) return stop->deadline_us + state.config.checkpoint_grace_us;
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

}  // namespace

std::vector<JobId> Picture::RefreshJobs(YardState& state) {
  std::vector<JobId> left;
  for (const JobId& id : state.changes.jobs) {
    if (RefreshJob(state, id)) left.push_back(id);
  }
  state.changes.jobs.clear();
  return left;
}

void Picture::RefreshPool(YardState& state) {
  for (const std::string& name : state.changes.workers) RefreshWorker(state, name);
  state.changes.workers.clear();
}

PassInput Picture::Input(const YardState& state, Now now) const {
  const Snapshot& records = state.snapshot();
  return {state.config,         pool_, queue_,       running_, records.usage, records.quotas,
          records.reservations, now,   &state.speeds};
}

void Picture::AddPossible(const PossibleWorkers& possible, Pool& pool) {
  PoolWorker worker;
  worker.traits = TraitsOf(possible.worker, possible.datasets.get());
  worker.users.only = possible.user;
  worker.host = possible.worker.host;
  worker.device_share = DeviceShare(possible.worker);
  for (const DeviceRecord& device : possible.worker.devices) {
    PoolDevice& shown = worker.devices.emplace_back();
    shown.name = device.name;
    shown.type = device.type;
    shown.memory_bytes = device.memory_bytes;
    shown.island = device.island;
    shown.bf16 = device.bf16;
    shown.usable = true;
    shown.share = TraitsOf(possible.worker, device).share;
  }
  for (int32_t i = 0; i < possible.count; ++i) {
    // No real worker has such a name, and all of them come before it.
    worker.name = absl::StrFormat("~%06d", i);
    pool.push_back(worker);
  }
}

void Picture::Hold(JobId job, const std::vector<RankPlacement>& ranks) {
  core::Hold(pool_, job, ranks);
}

void Picture::RefreshWorker(const YardState& state, const std::string& name) {
  const auto place = std::lower_bound(
      pool_.begin(), pool_.end(), name,
      [](const PoolWorker& worker, const std::string& wanted) { return worker.name < wanted; });
  const bool is_there = place != pool_.end() && place->name == name;
  const auto record = state.snapshot().workers.find(name);
  if (record == state.snapshot().workers.end() ||
      std::holds_alternative<worker_fsm::Gone>(record->second.state)) {
    if (is_there) pool_.erase(place);
  } else if (is_there) {
    *place = MakePoolWorker(state, record->second);
  } else {
    pool_.insert(place, MakePoolWorker(state, record->second));
  }
}

// Returns true if the job has left the queue. It may have been deleted since.
bool Picture::RefreshJob(const YardState& state, JobId id) {
  const auto found = state.snapshot().jobs.find(id);
  const JobRecord* record = found == state.snapshot().jobs.end() ? nullptr : &found->second;
  const AttemptId newest{id, record == nullptr ? 0 : record->attempt};
  if (state.live.Find(newest) != nullptr) {
    running_[id] = MakeRunning(state, state.ledger.attempt(newest));
  } else {
    running_.erase(id);
  }
  if (record != nullptr && std::holds_alternative<job_fsm::Queued>(record->state)) {
    queue_.Put(MakeQueued(state, *record));
    return false;
  }
  if (queue_.Find(id) == nullptr) return false;
  queue_.Remove(id);
  return true;
}

void Picture::RefreshRunning(const YardState& state, Now now) {
  for (auto& [id, job] : running_) {
    const JobRecord& record = state.ledger.job(id);
    const AttemptId attempt{id, record.attempt};
    const LiveAttempt& live = state.live.at(attempt);
    const PendingStop* stop = state.stops.Find(attempt);
    const bool runs = std::holds_alternative<job_fsm::Running>(record.state);
    job.guest = queue_.Find(state.ledger.attempt(attempt).guest_of) != nullptr;
    job.stops = stop != nullptr || std::holds_alternative<job_fsm::Stopping>(record.state);
    job.end_us = ExpectedEnd(state, record, live, stop, now);
    job.at_risk_us = now.uptime_us - live.safe_since_us;
    job.may_preempt = runs && !job.stops && record.submission->preemptible &&
                      live.run_since_us.has_value() &&
                      (job.guest || now.uptime_us - live.started_us >= state.config.min_runtime_us);
  }
}

QueuedJob PreviewJob(const YardState& state, const Submission& submission, Now now) {
  QueuedJob job = MakeQueued(state, submission);
  job.id = JobId{std::numeric_limits<int64_t>::max()};
  job.waiting_since_us = now.wall_us;
  for (const Dependency& dependency : submission.dependencies) {
    AddDependencyHold(state.snapshot(), dependency, job);
  }
  if (submission.not_before_us > now.wall_us) AddBeginHold(submission.not_before_us, job);
  return job;
}

}  // namespace trainyard::core
