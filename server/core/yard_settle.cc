// The end of a loop turn: timers that are due, placement, and what has become of it all.
#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/duration.h"
#include "server/core/yard_impl.h"

namespace trainyard::core {
namespace {

// "12:03:07 UTC".
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

void TakeEarlier(std::optional<int64_t>& earliest, int64_t deadline) {
  if (!earliest.has_value() || deadline < *earliest) earliest = deadline;
}

}  // namespace

Turn Yard::Impl::Settle(Now now) {
  FireTimers(now);
  if (plan_again_) MakePlan(now);
  plan_again_ = false;
  RefreshDesired();
  turn_.delta = ledger_.Take();
  return std::exchange(turn_, Turn{});
}

// Timers are data: each deadline is computed from the records and the contacts, here and in
// NextDeadline. There are few of them, so nothing keeps them sorted.
void Yard::Impl::FireTimers(Now now) {
  for (const auto& [name, contact] : contacts_) FireWorkerTimers(name, now);
  std::vector<AttemptId> live;
  for (const auto& [id, attempt] : live_) live.push_back(id);
  for (const AttemptId& id : live) FireAttemptTimers(id, now);
  for (auto it = backoffs_.begin(); it != backoffs_.end();) {
    if (it->second > now.uptime_us) {
      ++it;
    } else {
      it = backoffs_.erase(it);
      plan_again_ = true;
    }
  }
}

void Yard::Impl::FireWorkerTimers(const std::string& name, Now now) {
  Contact& contact = contacts_.at(name);
  const WorkerRecord& worker = ledger_.worker(name);
  if (std::holds_alternative<worker_fsm::Active>(worker.state)) {
    if (now.uptime_us < contact.lease_deadline_us) return;
    contact.unreachable_since_us = contact.lease_deadline_us;
    StepWorker(name, worker_fsm::LeaseExpired{now.wall_us}, "server",
               absl::StrCat("no sync for ", config_.lease_us / kSecond, " s"), now);
  }
  if (!std::holds_alternative<worker_fsm::Unreachable>(worker.state)) return;
  const auto on = live_on_.find(name);
  if (on != live_on_.end()) {
    const std::set<AttemptId> attempts = on->second;
    for (const AttemptId& id : attempts) {
      if (!HoldsDevices(FindPart(ledger_.attempt(id), name)->state)) continue;
      if (now.uptime_us < LostDeadline(contact, id.job)) continue;
      LosePart(name, id, "WORKER_LOST", absl::StrCat("worker ", name, " was away for too long"),
               now);
    }
  }
  if (!HasHoldingParts(name) &&
      now.uptime_us >= contact.unreachable_since_us + config_.gone_after_us) {
    StepWorker(name, worker_fsm::GaveUp{now.wall_us}, "server", "was away for too long", now);
  }
}

void Yard::Impl::FireAttemptTimers(AttemptId id, Now now) {
  const LiveAttempt& live = live_.at(id);
  if (const auto deadline = TimeLimitDeadline(id, live);
      deadline.has_value() && now.uptime_us >= *deadline) {
    const int64_t limit_us = ledger_.job(id.job).submission->time_limit_us;
    TY_CHECK_OK(
        StepJob(id.job,
                job_fsm::TimeLimit{absl::StrCat(
                    "time limit of ", DurationText(absl::Microseconds(limit_us)), " reached")},
                "server", "", now));
  }
  if (!live.drain_deadline_us.has_value() || now.uptime_us < *live.drain_deadline_us) return;
  for (AttemptPart& part : ledger_.EditAttempt(id).parts) {
    if (part.state != PartState::kExited) continue;
    part.state = PartState::kDrained;
    touched_workers_.insert(part.worker);
    ledger_.AddEvent(now.wall_us, AttemptName(id), "ATTEMPT_NOT_DRAINED", "server",
                     absl::StrCat("worker ", part.worker, " has not delivered everything within ",
                                  config_.drain_limit_us / kSecond, " s"));
  }
  CheckGone(id, "server", now);
}

std::optional<int64_t> Yard::Impl::TimeLimitDeadline(AttemptId id, const LiveAttempt& live) const {
  const JobRecord& job = ledger_.job(id.job);
  if (job.submission->time_limit_us == 0 || !live.run_since_us.has_value() ||
      !std::holds_alternative<job_fsm::Running>(job.state)) {
    return std::nullopt;
  }
  return *live.run_since_us + job.submission->time_limit_us - job.run_time_us;
}

// By then the supervisor has stopped the ranks by itself: its lease file is renewed only while the
// worker has news from here.
int64_t Yard::Impl::LostDeadline(const Contact& contact, JobId job) const {
  return contact.unreachable_since_us + ledger_.job(job).submission->disconnect_keep_us +
         std::max(config_.cancel_grace_us, config_.checkpoint_grace_us) + config_.lost_margin_us;
}

bool Yard::Impl::HasHoldingParts(const std::string& worker) const {
  const auto on = live_on_.find(worker);
  return on != live_on_.end() &&
         std::any_of(on->second.begin(), on->second.end(), [&](const AttemptId& id) {
           return HoldsDevices(FindPart(ledger_.attempt(id), worker)->state);
         });
}

std::optional<int64_t> Yard::Impl::NextDeadline() const {
  std::optional<int64_t> next;
  for (const auto& [name, contact] : contacts_) {
    const WorkerRecord& worker = ledger_.worker(name);
    if (std::holds_alternative<worker_fsm::Active>(worker.state)) {
      TakeEarlier(next, contact.lease_deadline_us);
    } else if (std::holds_alternative<worker_fsm::Unreachable>(worker.state)) {
      const auto on = live_on_.find(name);
      if (on != live_on_.end()) {
        for (const AttemptId& id : on->second) {
          if (HoldsDevices(FindPart(ledger_.attempt(id), name)->state)) {
            TakeEarlier(next, LostDeadline(contact, id.job));
          }
        }
      }
      if (!HasHoldingParts(name)) {
        TakeEarlier(next, contact.unreachable_since_us + config_.gone_after_us);
      }
    }
  }
  for (const auto& [id, live] : live_) {
    if (live.drain_deadline_us.has_value()) TakeEarlier(next, *live.drain_deadline_us);
    if (const auto limit = TimeLimitDeadline(id, live)) TakeEarlier(next, *limit);
  }
  for (const auto& [job, deadline] : backoffs_) TakeEarlier(next, deadline);
  return next;
}

Pool Yard::Impl::MakePool() const {
  Pool pool;
  for (const auto& [name, record] : snapshot().workers) {
    if (std::holds_alternative<worker_fsm::Gone>(record.state)) continue;
    const Contact& contact = contacts_.at(name);
    PoolWorker worker;
    worker.name = name;
    if (std::holds_alternative<worker_fsm::Unreachable>(record.state)) {
      worker.why_not = "is unreachable";
    } else if (!contact.synced) {
      worker.why_not = "has not reported yet what it runs";
    } else if (RunsUnknown(contact)) {
      worker.why_not = "runs an attempt that this server does not know";
    } else if (record.scheduling != Scheduling::kEligible) {
      worker.why_not = absl::StrCat("is ", LowerCase(Text(record.scheduling)));
    }
    worker.takes_ranks = worker.why_not.empty();
    const std::map<std::string, AttemptId> holders = HoldersOn(name);
    for (const DeviceRecord& device : record.devices) {
      PoolDevice& slot = worker.devices.emplace_back();
      slot.name = device.name;
      slot.type = device.type;
      slot.usable = device.health == DeviceHealth::kOk;
      if (!slot.usable) {
        slot.why_not = device.health == DeviceHealth::kQuarantined
                           ? "is quarantined"
                           : "is used by a process that is not ours";
        if (!device.health_reason.empty()) {
          absl::StrAppend(&slot.why_not, ": ", device.health_reason);
        }
      }
      const auto holder = holders.find(device.name);
      if (holder != holders.end()) slot.holder = holder->second.job;
    }
    pool.push_back(std::move(worker));
  }
  return pool;
}

std::vector<QueuedJob> Yard::Impl::MakeQueue() const {
  std::vector<QueuedJob> queue;
  for (const JobId& id : queued_) {
    const JobRecord& record = ledger_.job(id);
    QueuedJob& job = queue.emplace_back();
    job.id = id;
    job.demand = record.submission->demand;
    job.priority = record.submission->priority;
    const auto& state = std::get<job_fsm::Queued>(record.state);
    if (backoffs_.count(id) > 0) {
      const FailureClass after = state.last_failure.has_value() ? state.last_failure->failure_class
                                                                : FailureClass::kTransient;
      job.holds.push_back(absl::StrCat("backoff until ", TimeOfDay(state.not_before_us),
                                       " after a ", LowerCase(Text(after)), " failure"));
    }
    if (record.failures == 0) continue;
    const auto& attempts = snapshot().attempts;
    for (auto it = attempts.lower_bound({id, 0}); it != attempts.end() && it->first.job == id;
         ++it) {
      for (const AttemptPart& part : it->second.parts) {
        const Outcome& outcome = part.outcome;
        if (outcome.failure.failure_class != FailureClass::kHardware) continue;
        for (const RankPlacement& rank : it->second.ranks) {
          if (rank.rank == outcome.failed_rank && rank.worker == part.worker) {
            job.avoid.insert({rank.worker, rank.device});
          }
        }
      }
    }
  }
  return queue;
}

void Yard::Impl::MakePlan(Now now) {
  if (queued_.empty()) return;
  Pool pool = MakePool();
  const Plan plan = policy_->MakePlan(pool, MakeQueue());
  for (const auto& [id, decision] : plan) {
    const JobRecord& job = ledger_.job(id);
    TY_CHECK(queued_.count(id) > 0);
    if (const auto* place = std::get_if<Place>(&decision)) {
      TY_CHECK_OK(CheckPlacement(pool, job.submission->demand, place->ranks));
      Hold(pool, id, place->ranks);
      StartAttempt(id, place->ranks, now);
      continue;
    }
    const auto* wait = std::get_if<Wait>(&decision);
    const std::vector<std::string>& reasons =
        wait != nullptr ? wait->reasons : std::get<Infeasible>(decision).reasons;
    std::vector<std::string>& known = reasons_[id];
    if (known == reasons) continue;
    known = reasons;
    turn_.reasons_changed.insert(id);
  }
}

std::vector<std::string> Yard::Impl::QueueReasons(const Submission& submission) const {
  // Behind all jobs of its priority, as a new one is.
  constexpr JobId kNewest{std::numeric_limits<int64_t>::max()};
  std::vector<QueuedJob> queue = MakeQueue();
  QueuedJob& job = queue.emplace_back();
  job.id = kNewest;
  job.demand = submission.demand;
  job.priority = submission.priority;
  const Plan plan = policy_->MakePlan(MakePool(), std::move(queue));
  const Decision& decision = plan.at(kNewest);
  if (const auto* wait = std::get_if<Wait>(&decision)) return wait->reasons;
  if (const auto* infeasible = std::get_if<Infeasible>(&decision)) return infeasible->reasons;
  return {};
}

// The token grows in the transaction that allocates the devices.
void Yard::Impl::StartAttempt(JobId id, std::vector<RankPlacement> ranks, Now now) {
  JobRecord& job = ledger_.EditJob(id);
  ++job.attempt;
  ++job.fencing_token;
  AttemptRecord attempt;
  attempt.id = {id, job.attempt};
  attempt.fencing_token = job.fencing_token;
  attempt.ranks = std::move(ranks);
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
  live_[attempt.id];
  TouchWorkersOf(attempt);
  const AttemptId attempt_id = attempt.id;
  std::string from;
  if (attempt.resume_from.has_value()) {
    from = absl::StrCat(", from ",
                        CheckpointName(attempt.resume_from->job, attempt.resume_from->step));
  }
  ledger_.AddAttempt(std::move(attempt));
  ledger_.AddEvent(now.wall_us, AttemptName(attempt_id), "ATTEMPT_PLACED", "scheduler",
                   absl::StrCat("on ", where, from));
  TY_CHECK_OK(StepJob(id, job_fsm::Placed{}, "scheduler",
                      absl::StrCat("attempt ", attempt_id.number, " placed"), now));
}

// Gives a new revision to each worker whose orders have changed.
void Yard::Impl::RefreshDesired() {
  for (const std::string& name : touched_workers_) {
    const auto found = contacts_.find(name);
    if (found == contacts_.end() || found->second.session.empty()) continue;
    Contact& contact = found->second;
    std::vector<DesiredAttempt> desired = DesiredFor(name);
    if (contact.desired_revision != 0 && desired == contact.desired) continue;
    contact.desired = std::move(desired);
    contact.desired_revision = ++desired_counter_;
    turn_.desired_changed.insert(name);
  }
  touched_workers_.clear();
}

}  // namespace trainyard::core
