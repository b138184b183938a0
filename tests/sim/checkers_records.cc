// Judges what each turn changes in the records.
#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/errors.h"
#include "tests/sim/checkers.h"

namespace trainyard::sim {
namespace {

namespace job_fsm = core::job_fsm;
namespace attempt_fsm = core::attempt_fsm;
using core::PartState;
using core::StopReason;

// Turns are committed a little after they were decided.
constexpr Time kCommitSlack = 5 * kSecond;

template <typename Row, typename Key, typename Map, typename KeyOf>
const Row* FindRow(const std::vector<Row>& changed, const Map& before, const Key& key,
                   const KeyOf& key_of) {
  for (const Row& row : changed) {
    if (key_of(row) == key) return &row;
  }
  const auto found = before.find(key);
  return found == before.end() ? nullptr : &found->second;
}

bool IsQueued(const core::JobRecord& job) {
  return std::holds_alternative<job_fsm::Queued>(job.state);
}

bool Holds(const core::AttemptRecord& attempt, const std::string& worker) {
  for (const core::AttemptPart& part : attempt.parts) {
    if (part.worker == worker) {
      return part.state != PartState::kExited && part.state != PartState::kDrained &&
             part.state != PartState::kLost;
    }
  }
  return false;
}

// Returns 7 for "its devices go to jobs/7, ...".
JobId Claimant(const std::string& detail) {
  const std::vector<std::string> words = absl::StrSplit(detail, "its devices go to jobs/");
  JobId job;
  if (words.size() == 2) {
    const std::vector<std::string> number = absl::StrSplit(words[1], ',');
    if (!absl::SimpleAtoi(number[0], &job.value)) job.value = 0;
  }
  return job;
}

// Returns the quota of a user: his own, or else the one for all others.
const core::QuotaRecord* QuotaOf(const core::Snapshot& state, const std::string& user) {
  auto found = state.quotas.find(absl::StrCat("user:", user));
  if (found == state.quotas.end()) found = state.quotas.find("user:*");
  return found == state.quotas.end() ? nullptr : &found->second;
}

bool SameQuotas(const core::Delta& delta) {
  return delta.quotas.empty() && delta.deleted_quotas.empty();
}

}  // namespace

const core::JobRecord* Checkers::Change::Job(JobId id) const {
  return FindRow(delta.jobs, before.jobs, id, [](const auto& row) { return row.id; });
}
const core::WorkerRecord* Checkers::Change::Worker(const std::string& name) const {
  return FindRow(delta.workers, before.workers, name, [](const auto& row) { return row.name; });
}
const core::AttemptRecord* Checkers::Change::Attempt(AttemptId id) const {
  return FindRow(delta.attempts, before.attempts, id, [](const auto& row) { return row.id; });
}

void Checkers::Committed(const core::Snapshot& before, const core::Delta& delta) {
  if (delta.deleted_jobs.empty()) {
    CheckRecords({before, delta});
    return;
  }
  // A job may have ended and been deleted in one turn. Its records are then not checked.
  core::Snapshot rest = before;
  for (const JobId id : delta.deleted_jobs) {
    CheckDeletedJob(id);
    rest.jobs.erase(id);
    std::erase_if(rest.attempts, [id](const auto& entry) { return entry.first.job == id; });
  }
  CheckRecords({rest, delta});
}

void Checkers::CheckDeletedJob(JobId id) {
  for (const auto& [pid, process] : trainers_.processes()) {
    if (process.start.attempt.job != id) continue;
    world_.Violate("only a job that has ended is deleted",
                   absl::StrCat(AttemptName(process.start.attempt), " still runs"));
  }
  deleted_.insert(id);
  std::erase_if(stopping_since_, [id](const auto& entry) { return entry.first.job == id; });
  backoff_since_.erase(id);
  asked_.erase(id);
  claimants_.erase(id);
  preempting_since_.erase(id);
}

void Checkers::CheckRecords(const Change& change) {
  const core::Snapshot& before = change.before;
  const core::Delta& delta = change.delta;
  for (const core::EventRecord& event : delta.events) NoteEvent(event);
  for (const core::AttemptRecord& attempt : delta.attempts) {
    const auto known = before.attempts.find(attempt.id);
    if (known == before.attempts.end()) CheckPlacement(change, attempt);
    if (known != before.attempts.end() && attempt_fsm::IsFinal(known->second.state) &&
        !(known->second == attempt)) {
      world_.Violate("final is final", AttemptName(attempt.id));
    }
    if (std::holds_alternative<attempt_fsm::Stopping>(attempt.state)) {
      stopping_since_.try_emplace(attempt.id, world_.now());
    } else {
      stopping_since_.erase(attempt.id);
    }
  }
  for (const core::JobRecord& job : delta.jobs) CheckJob(change, job);
  for (const core::WorkerRecord& worker : delta.workers) {
    joined_.try_emplace(worker.name, world_.now());
    const auto known = before.workers.find(worker.name);
    if (known != before.workers.end() && known->second.scheduling != worker.scheduling) {
      // Devices that were to be freed there are offered to nobody from now on, or others are.
      preempting_since_.clear();
    } else if (!std::holds_alternative<core::worker_fsm::Active>(worker.state)) {
      // Devices that were to be freed there may never come free.
      for (auto& [job, since] : preempting_since_) since = world_.now();
    }
    if (worker.scheduling == core::Scheduling::kDraining) {
      draining_since_.try_emplace(worker.name, world_.now());
    } else {
      draining_since_.erase(worker.name);
    }
  }
  for (const core::CheckpointRecord& checkpoint : delta.checkpoints) {
    CheckCheckpoint(change, checkpoint);
  }
  for (const core::CheckpointRef& id : delta.deleted_checkpoints) CheckDeleted(change, id);
}

void Checkers::NoteEvent(const core::EventRecord& event) {
  world_.Say("record", event.resource, " ", event.type, " ", event.message);
  if (event.type == "CHECKPOINT_REQUESTED" || event.type == "CHECKPOINT_COMMITTED") {
    const auto job = ParseJobName(event.resource);
    if (!job.ok()) return;
    if (event.type == "CHECKPOINT_REQUESTED") {
      asked_[*job] = {world_.now(), false};
      if (const JobId claimant = Claimant(event.message); claimant != JobId{}) {
        claimants_.insert(claimant);
      }
    } else if (const auto asked = asked_.find(*job); asked != asked_.end()) {
      asked->second.committed = true;
    }
  }
  if (event.type == "ATTEMPT_NOT_DRAINED") {
    const auto attempt = ParseAttemptName(event.resource);
    if (attempt.ok()) cut_short_.insert(*attempt);
  }
}

void Checkers::CheckJob(const Change& change, const core::JobRecord& job) {
  const auto known = change.before.jobs.find(job.id);
  if (known == change.before.jobs.end()) {
    CheckNewJob(change, job);
    return;
  }
  const core::JobRecord& before = known->second;
  if (job_fsm::IsFinal(before.state) && !(before.state == job.state)) {
    world_.Violate("final is final",
                   absl::StrCat(JobName(job.id), " was ", job_fsm::Name(before.state), " and is ",
                                job_fsm::Name(job.state)));
  }
  if (job.fencing_token < before.fencing_token) {
    world_.Violate("tokens grow", JobName(job.id));
  }
  const core::AttemptRecord* attempt = change.Attempt({job.id, job.attempt});
  if (std::holds_alternative<job_fsm::Succeeded>(job.state) &&
      finished_.count({job.id, job.attempt}) == 0) {
    world_.Violate("who succeeds has trained to the end", JobName(job.id));
  }
  if (job.retries > before.retries && attempt != nullptr) {
    const auto* failed = std::get_if<attempt_fsm::Failed>(&attempt->state);
    if (failed == nullptr || failed->failure.failure_class == core::FailureClass::kHardware ||
        failed->failure.failure_class == core::FailureClass::kLost) {
      world_.Violate("only failures of its own cost a retry", AttemptName(attempt->id));
    }
  }
  CheckDamageIsFree(change, job);
  if (job.retries > job.submission->max_retries) {
    world_.Violate("retries are bounded", JobName(job.id));
  }
  const auto* queued = std::get_if<job_fsm::Queued>(&job.state);
  if (queued != nullptr && queued->not_before_us > 0 && job.submission->not_before_us == 0) {
    backoff_since_.try_emplace(job.id, world_.now());
  } else {
    backoff_since_.erase(job.id);
  }
  CheckStop(change, job);
  if (!IsQueued(job)) {
    preempting_since_.erase(job.id);
    claimants_.erase(job.id);
  }
}

// Only damaged checkpoints make files corrupt here, and the jobs start from checkpoints of their
// own. So every one of them has something else to start from, if only the beginning.
void Checkers::CheckDamageIsFree(const Change& change, const core::JobRecord& job) {
  const auto is_damage = [](const core::Failure& failure) {
    return failure.reason == error::kCheckpointDamaged || failure.reason == "CORRUPT_FILE";
  };
  const auto* failed = std::get_if<job_fsm::Failed>(&job.state);
  const auto* held = std::get_if<job_fsm::Suspended>(&job.state);
  const bool ends = (failed != nullptr && is_damage(failed->failure)) ||
                    (held != nullptr && held->failure.has_value() && is_damage(*held->failure));
  const core::AttemptRecord* attempt = change.Attempt({job.id, job.attempt});
  const auto* last =
      attempt == nullptr ? nullptr : std::get_if<attempt_fsm::Failed>(&attempt->state);
  const bool costs = job.retries > change.before.jobs.at(job.id).retries && last != nullptr &&
                     is_damage(last->failure);
  if (ends || costs) {
    world_.Violate("a damaged checkpoint ends no job and costs no retry", JobName(job.id));
  }
}

void Checkers::CheckNewJob(const Change& change, const core::JobRecord& job) {
  const core::Submission& submission = *job.submission;
  submissions_[job.id] = job.submission;
  const JobId first = job.array == JobId{} ? job.id : job.array;
  const auto [named, is_new] = named_.emplace(submission.name, first);
  const bool has_request =
      std::any_of(change.delta.requests.begin(), change.delta.requests.end(),
                  [&first](const core::RequestRecord& request) { return request.job == first; });
  if (!is_new && named->second != first && has_request) {
    world_.Violate("a repeated request is the same job",
                   absl::StrCat(JobName(first), " and ", JobName(named->second)));
  }
  CheckQueueQuota(change, job);
}

void Checkers::CheckQueueQuota(const Change& change, const core::JobRecord& job) {
  const core::QuotaRecord* quota = QuotaOf(change.before, job.submission->user);
  if (quota == nullptr || quota->queued_jobs == 0 || !SameQuotas(change.delta)) return;
  int64_t waiting = 0;
  for (const auto& [id, other] : change.before.jobs) {
    if (other.submission->user == job.submission->user && IsQueued(other)) {
      // A job that leaves the queue in this turn may have left it before this submission.
      if (IsQueued(*change.Job(id))) ++waiting;
    }
  }
  for (const core::JobRecord& other : change.delta.jobs) {
    if (change.before.jobs.count(other.id) > 0) continue;
    if (other.submission->user == job.submission->user && IsQueued(other)) ++waiting;
  }
  if (waiting > quota->queued_jobs) {
    world_.Violate("quotas hold",
                   absl::StrCat(job.submission->user, " has ", waiting,
                                " jobs in the queue; the quota is ", quota->queued_jobs));
  }
}

// A running job that is stopped for others was asked for a checkpoint, and was given time for it.
void Checkers::CheckStop(const Change& change, const core::JobRecord& job) {
  const auto* stopping = std::get_if<job_fsm::Stopping>(&job.state);
  const core::JobState& before = change.before.jobs.at(job.id).state;
  if (stopping == nullptr || std::holds_alternative<job_fsm::Stopping>(before)) return;
  const bool for_others = stopping->reason == StopReason::kPreempt ||
                          stopping->reason == StopReason::kDrain ||
                          stopping->reason == StopReason::kResize;
  if (!for_others) return;
  if (stopping->reason == StopReason::kPreempt) {
    if (const JobId claimant = Claimant(stopping->detail); claimant != JobId{}) {
      // The claimant may have been deleted since the stop was decided.
      const core::JobRecord* waiting = change.Job(claimant);
      const core::Submission& other =
          waiting != nullptr ? *waiting->submission : *submissions_.at(claimant);
      // A guest must leave for the job that kept the devices which it was lent.
      const bool is_guest = absl::StrContains(stopping->detail, "which kept them");
      const int32_t most = other.priority - (is_guest ? 0 : 1);
      if (job.submission->priority > most) {
        world_.Violate("only a higher priority preempts",
                       absl::StrCat(JobName(job.id), " goes for ", JobName(claimant)));
      }
      if (!job.submission->preemptible) {
        world_.Violate("who cannot be preempted is not", JobName(job.id));
      }
      if (waiting != nullptr && IsQueued(*waiting)) {
        claimants_.insert(claimant);
        preempting_since_.try_emplace(claimant, world_.now());
      }
    }
  }
  // A stop without a detail is a suspension that was taken back before it took effect.
  if (!std::holds_alternative<job_fsm::Running>(before) || stopping->detail.empty()) return;
  const auto asked = asked_.find(job.id);
  const Time least = std::min(20 * kSecond, options_.config.checkpoint_wait_us) - kCommitSlack;
  if (asked == asked_.end() ||
      (!asked->second.committed && world_.now() - asked->second.when < least)) {
    world_.Violate("a stop waits for a checkpoint", JobName(job.id));
  }
  asked_.erase(job.id);
}

// A job keeps the precision that `train.precision: auto` became at its first placement, and runs
// where devices have it.
void Checkers::CheckPrecision(const Change& change, const core::AttemptRecord& attempt) {
  const core::JobRecord& job = *change.Job(attempt.id.job);
  const std::string name = AttemptName(attempt.id);
  if (job.submission->auto_precision == (job.precision == core::Precision::kNone)) {
    world_.Violate("a precision is decided at the first placement", name);
  }
  const auto known = change.before.jobs.find(job.id);
  if (known != change.before.jobs.end() && known->second.precision != core::Precision::kNone &&
      known->second.precision != job.precision) {
    world_.Violate("a job keeps its precision", name);
  }
  if (job.precision != core::Precision::kBf16) return;
  for (const core::RankPlacement& rank : attempt.ranks) {
    for (const core::DeviceRecord& device : change.Worker(rank.worker)->devices) {
      if (device.name != rank.device || device.bf16) continue;
      world_.Violate("bf16 runs where it can", absl::StrCat(name, " on ", device.name));
    }
  }
}

void Checkers::CheckPlacement(const Change& change, const core::AttemptRecord& attempt) {
  const core::JobRecord& job = *change.Job(attempt.id.job);
  const core::Demand& demand = job.submission->demand;
  const auto size = static_cast<int32_t>(attempt.ranks.size());
  const std::string name = AttemptName(attempt.id);
  if (size > demand.count || size < demand.least()) {
    world_.Violate("gangs are whole", absl::StrCat(name, " has ", size, " ranks"));
  }
  const auto known = change.before.jobs.find(job.id);
  const int64_t token = known == change.before.jobs.end() ? 0 : known->second.fencing_token;
  if (attempt.fencing_token != token + 1) world_.Violate("tokens grow", name);
  for (const core::RankPlacement& rank : attempt.ranks) {
    if (demand.one_host && rank.worker != attempt.ranks.front().worker) {
      world_.Violate("ranks of one host are together", absl::StrCat(name, " on ", rank.worker));
    }
    const core::WorkerRecord* worker = change.Worker(rank.worker);
    const bool takes = worker != nullptr &&
                       std::holds_alternative<core::worker_fsm::Active>(worker->state) &&
                       worker->scheduling == core::Scheduling::kEligible;
    if (!takes) {
      world_.Violate("ranks go where they are taken", absl::StrCat(name, " on ", rank.worker));
      return;
    }
    for (const auto& host : hosts_) {
      if (host->name != rank.worker || !host->daemon->is_known_to_leave()) continue;
      world_.Violate("who is told to end gets nothing more",
                     absl::StrCat(name, " on ", rank.worker));
    }
    for (const core::DeviceRecord& device : worker->devices) {
      if (device.name != rank.device) continue;
      if (device.health != core::DeviceHealth::kOk || !device.quarantine.empty()) {
        world_.Violate("ranks go where they are taken", absl::StrCat(name, " on ", device.name));
      }
    }
    for (const auto& [id, other] : change.before.attempts) {
      const core::AttemptRecord& now = *change.Attempt(id);
      if (attempt_fsm::IsFinal(now.state) || !Holds(now, rank.worker)) continue;
      for (const core::RankPlacement& held : now.ranks) {
        if (held.worker == rank.worker && held.device == rank.device && !held.device.empty()) {
          world_.Violate("a device hosts one rank",
                         absl::StrCat(name, " is placed beside ", AttemptName(id)));
        }
      }
    }
  }
  CheckPrecision(change, attempt);
  CheckResume(change, attempt);
  CheckTurn(change, attempt);
  CheckDeviceQuota(change, job);
  CheckHosts(change, attempt);
}

// An attempt resumes from the newest committed checkpoint that is not known to be damaged, and
// nothing that was saved is lost.
void Checkers::CheckResume(const Change& change, const core::AttemptRecord& attempt) {
  const JobId job = attempt.id.job;
  std::map<int64_t, bool> is_whole;  // by step
  for (const auto& [id, checkpoint] : change.before.checkpoints) {
    if (id.job == job) is_whole[id.step] = checkpoint.is_whole();
  }
  for (const core::CheckpointRecord& checkpoint : change.delta.checkpoints) {
    if (checkpoint.id.job == job) is_whole[checkpoint.id.step] = checkpoint.is_whole();
  }
  int64_t newest = -1;
  for (const auto& [step, whole] : is_whole) newest = whole ? step : newest;
  const int64_t from = attempt.resume_from.has_value() ? attempt.resume_from->step : -1;
  if (from != newest) {
    world_.Violate("resume from the newest checkpoint",
                   absl::StrCat(AttemptName(attempt.id), " starts at ", from,
                                "; the newest committed that is whole is ", newest));
  }
  const AttemptId last{job, attempt.id.number - 1};
  const core::AttemptRecord* before = change.Attempt(last);
  const auto saved = saved_.find(last);
  if (before == nullptr || saved == saved_.end() || cut_short_.count(last) > 0) return;
  const bool all_drained =
      std::all_of(before->parts.begin(), before->parts.end(),
                  [](const core::AttemptPart& part) { return part.state == PartState::kDrained; });
  const auto kept = is_whole.find(saved->second);
  const bool is_damaged = kept != is_whole.end() && !kept->second;
  if (all_drained && from < saved->second && !is_damaged) {
    world_.Violate("no step is lost",
                   absl::StrCat(AttemptName(last), " ended well at step ", saved->second, "; ",
                                AttemptName(attempt.id), " starts at ", from));
  }
}

// If two jobs do not differ in anything, the older one goes first.
void Checkers::CheckTurn(const Change& change, const core::AttemptRecord& attempt) {
  const core::Submission& one = *change.Job(attempt.id.job)->submission;
  if (one.array_size > 0 || !one.dependencies.empty() || !one.reservation.empty()) return;
  // The devices of a claimant were freed for it before the other job came back.
  if (claimants_.count(attempt.id.job) > 0) return;
  for (const auto& [id, other] : change.before.jobs) {
    if (id >= attempt.id.job) break;
    const core::JobRecord& now = *change.Job(id);
    const core::Submission& two = *now.submission;
    if (!IsQueued(now) || !IsQueued(other) || two.array_size > 0 || !two.dependencies.empty()) {
      continue;
    }
    const bool twins =
        one.user == two.user && one.project == two.project && one.priority == two.priority &&
        core::DemandOf(*change.Job(attempt.id.job)) == core::DemandOf(now) &&
        one.preemptible == two.preemptible && one.time_limit_us == two.time_limit_us &&
        two.not_before_us == 0 && std::get<job_fsm::Queued>(now.state).not_before_us == 0;
    // A claimant waits for the devices that others are being stopped to free.
    if (claimants_.count(id) > 0) continue;
    const bool same_length =
        one.time_limit_us == 0 || now.run_time_us == change.Job(attempt.id.job)->run_time_us;
    if (!twins || !same_length) continue;
    world_.Violate("a job keeps its place in the queue",
                   absl::StrCat(JobName(attempt.id.job), " starts before ", JobName(id)));
  }
}

// The ranks of a host never hold more than it has told.
void Checkers::CheckHosts(const Change& change, const core::AttemptRecord& placed) {
  std::map<std::string, core::HostAmount> held;
  const auto count = [&](const core::AttemptRecord& attempt) {
    if (attempt_fsm::IsFinal(attempt.state)) return;
    for (const core::RankPlacement& rank : attempt.ranks) {
      if (Holds(attempt, rank.worker)) held[rank.worker] += rank.held;
    }
  };
  for (const auto& [id, attempt] : change.before.attempts) count(*change.Attempt(id));
  for (const core::AttemptRecord& attempt : change.delta.attempts) {
    if (change.before.attempts.count(attempt.id) == 0) count(attempt);
  }
  for (const core::RankPlacement& rank : placed.ranks) {
    const core::HostAmount& host = change.Worker(rank.worker)->host;
    if (host.empty() || held[rank.worker].Fits(host)) continue;
    world_.Violate("hosts are not overcommitted",
                   absl::StrCat("ranks on ", rank.worker, " hold ", held[rank.worker].cpus, " of ",
                                host.cpus, " cpus and ", held[rank.worker].memory_bytes, " of ",
                                host.memory_bytes, " bytes with ", AttemptName(placed.id)));
  }
}

void Checkers::CheckDeviceQuota(const Change& change, const core::JobRecord& job) {
  const core::QuotaRecord* quota = QuotaOf(change.before, job.submission->user);
  if (quota == nullptr || quota->devices == 0 || !SameQuotas(change.delta)) return;
  int64_t held = 0;
  const auto count = [&](const core::AttemptRecord& attempt) {
    if (attempt_fsm::IsFinal(attempt.state)) return;
    if (change.Job(attempt.id.job)->submission->user != job.submission->user) return;
    for (const core::RankPlacement& rank : attempt.ranks) {
      if (!rank.device.empty()) held += Holds(attempt, rank.worker);
    }
  };
  for (const auto& [id, attempt] : change.before.attempts) count(*change.Attempt(id));
  for (const core::AttemptRecord& attempt : change.delta.attempts) {
    if (change.before.attempts.count(attempt.id) == 0) count(attempt);
  }
  if (held > quota->devices) {
    world_.Violate("quotas hold", absl::StrCat(job.submission->user, " holds ", held,
                                               " devices; the quota is ", quota->devices));
  }
}

void Checkers::CheckCheckpoint(const Change& change, const core::CheckpointRecord& checkpoint) {
  const std::string name = CheckpointName(checkpoint.id.job, checkpoint.id.step);
  const core::JobRecord& job = *change.Job(checkpoint.id.job);
  const auto before = change.before.jobs.find(job.id);
  const auto known = change.before.checkpoints.find(checkpoint.id);
  // The server has noted what it found when it hashed the files.
  if (known != change.before.checkpoints.end() && known->second.attempt == checkpoint.attempt) {
    return;
  }
  // A turn may commit a checkpoint and also place the next attempt.
  if (checkpoint.attempt != job.attempt &&
      (before == change.before.jobs.end() || checkpoint.attempt != before->second.attempt)) {
    world_.Violate(
        "a stale token writes nothing",
        absl::StrCat(name, " is of attempt ", checkpoint.attempt, "; the newest is ", job.attempt));
  }
  for (const auto& [id, other] : change.before.checkpoints) {
    if (id.job == job.id && other.is_whole() && other.attempt < checkpoint.attempt &&
        id.step >= checkpoint.id.step) {
      world_.Violate(
          "checkpoints go forward",
          absl::StrCat(name, " of attempt ", checkpoint.attempt, " comes after step ", id.step));
    }
  }
}

// A job that keeps its best checkpoint loses none that is better than all that are left.
void Checkers::CheckDeleted(const Change& change, const core::CheckpointRef& id) {
  if (change.Job(id.job) == nullptr) return;  // it was deleted with its job
  const core::Submission& submission = *change.Job(id.job)->submission;
  const auto deleted = change.before.checkpoints.find(id);
  if (!submission.keeps_best || deleted == change.before.checkpoints.end()) return;
  const auto& gone = change.delta.deleted_checkpoints;
  bool has_better = !deleted->second.evaluation.has_value() || !deleted->second.is_whole();
  const auto compare = [&](const core::CheckpointRecord& other) {
    if (other.id.job != id.job || std::find(gone.begin(), gone.end(), other.id) != gone.end()) {
      return;
    }
    has_better =
        has_better || (other.is_whole() && core::IsBetter(submission, other, deleted->second));
  };
  for (const auto& [other, record] : change.before.checkpoints) compare(record);
  for (const core::CheckpointRecord& record : change.delta.checkpoints) compare(record);
  if (!has_better) {
    world_.Violate("the best checkpoint stays",
                   absl::StrCat(CheckpointName(id.job, id.step), " is deleted"));
  }
}

}  // namespace trainyard::sim
