// The end of a loop turn: timers that are due, placement, and what has become of it all.
#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/duration.h"
#include "common/base/planted_bug.h"
#include "server/core/yard/yard_impl.h"

namespace trainyard::core {
namespace {

void TakeEarlier(std::optional<int64_t>& earliest, int64_t deadline) {
  if (!earliest.has_value() || deadline < *earliest) earliest = deadline;
}

}  // namespace

Turn Yard::Impl::Settle(Now now) {
  FireTimers(now);
  if (plan_again_ && MakePlan(now)) MakePlan(now);
  plan_again_ = false;
  RefreshTimers();
  RefreshDesired();
  turn_.delta = ledger_.Take();
  return std::exchange(turn_, Turn{});
}

// Timers are data: deadlines are computed from the records and the contacts. Those of a worker and
// of the attempts on it change only when it is touched.
void Yard::Impl::RefreshTimers() {
  for (const std::string& name : touched_workers_) {
    worker_timers_.Set(name, WorkerDeadline(name));
    const auto on = live_on_.find(name);
    if (on == live_on_.end()) continue;
    for (const AttemptId& id : on->second) attempt_timers_.Set(id, AttemptDeadline(id));
  }
}

void Yard::Impl::FireTimers(Now now) {
  if (TY_BUG(lease_by_wall_clock)) {
    for (auto& [name, contact] : contacts_) {
      const int64_t away_us = now.wall_us - contact.last_seen_us;
      if (away_us < kHour) continue;
      contact.lease_deadline_us = now.uptime_us - away_us;
      Touch(name);
    }
  }
  RefreshTimers();
  for (const std::string& name : worker_timers_.Due(now.uptime_us)) {
    FireWorkerTimers(name, now);
    worker_timers_.Set(name, WorkerDeadline(name));
  }
  RefreshTimers();
  for (const AttemptId& id : attempt_timers_.Due(now.uptime_us)) {
    if (live_.count(id) == 0) continue;  // has ended with another
    FireAttemptTimers(id, now);
    if (live_.count(id) > 0) attempt_timers_.Set(id, AttemptDeadline(id));
  }
  for (const JobId id : wakes_.Due(now.uptime_us)) {
    wakes_.Set(id, std::nullopt);
    // After a backoff the delayed start counts again, should it be later.
    const int64_t left = StartDelay(*ledger_.job(id).submission, now);
    if (left > 0) wakes_.Set(id, now.uptime_us + left);
    stale_jobs_.insert(id);
    plan_again_ = true;
  }
  KeepAccounts(now);
  if (const auto next = NextPass(); next.has_value() && *next <= now.uptime_us) {
    plan_again_ = true;
  }
}

// Some decisions change with time alone: a minimum runtime is over, devices have been free for long
// enough to grow, a reservation begins. And new jobs may have been told to wait.
std::optional<int64_t> Yard::Impl::NextPass() const {
  std::optional<int64_t> next = reservation_deadline_us_;
  // Where growth may come sooner than that, so does the pass; but not many a second.
  const int64_t interval_us = std::max(std::min(config_.replan_us, config_.grow_after_us), kSecond);
  if (!running_.empty()) TakeEarlier(next, planned_at_.uptime_us + interval_us);
  if (has_new_jobs_) TakeEarlier(next, PassForNewJobs());
  return next;
}

// At once, unless they come at the end of a long queue.
int64_t Yard::Impl::PassForNewJobs() const {
  const bool is_long = static_cast<int64_t>(queue_.size()) >= config_.long_queue;
  return planned_at_.uptime_us + (is_long ? config_.pass_interval_us : 0);
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
  LoseParts(name, "was away for too long", now,
            [&](JobId job) { return now.uptime_us >= LostDeadline(contact, job); });
  if (!HasHoldingParts(name) &&
      now.uptime_us >= contact.unreachable_since_us + config_.gone_after_us) {
    StepWorker(name, worker_fsm::GaveUp{now.wall_us}, "server", "was away for too long", now);
  }
}

// What worker `name` ran of the jobs that `is_lost` names is lost.
void Yard::Impl::LoseParts(const std::string& name, absl::string_view why, Now now,
                           absl::FunctionRef<bool(JobId)> is_lost) {
  const auto on = live_on_.find(name);
  if (on == live_on_.end()) return;
  const std::set<AttemptId> attempts = on->second;
  for (const AttemptId& id : attempts) {
    if (!HoldsDevices(FindPart(ledger_.attempt(id), name)->state) || !is_lost(id.job)) continue;
    LosePart(name, id, "WORKER_LOST", absl::StrCat("worker ", name, " ", why), now);
  }
}

void Yard::Impl::FireAttemptTimers(AttemptId id, Now now) {
  LiveAttempt& live = live_.at(id);
  if (const auto deadline = TimeLimitDeadline(id, live);
      deadline.has_value() && now.uptime_us >= *deadline) {
    const int64_t limit_us = ledger_.job(id.job).submission->time_limit_us;
    TY_CHECK_OK(
        StepJob(id.job,
                job_fsm::TimeLimit{absl::StrCat(
                    "time limit of ", DurationText(absl::Microseconds(limit_us)), " reached")},
                "server", "", now));
  }
  if (const auto warning = WarningDeadline(id, live);
      warning.has_value() && now.uptime_us >= *warning) {
    live.is_warned = true;
    AskForCheckpoint(id);
    const int64_t left_us = ledger_.job(id.job).submission->time_limit_warning_us;
    ledger_.AddEvent(now.wall_us, JobName(id.job), "TIME_LIMIT_NEAR", "server",
                     absl::StrCat("the time limit is ", DurationText(absl::Microseconds(left_us)),
                                  " away; a checkpoint was asked for"));
  }
  if (live.stop.has_value() && now.uptime_us >= live.stop->deadline_us) {
    FireStop(id, "scheduler", now);
  }
  if (!live.drain_deadline_us.has_value() || now.uptime_us < *live.drain_deadline_us) return;
  for (AttemptPart& part : ledger_.EditAttempt(id).parts) {
    if (part.state != PartState::kExited) continue;
    part.state = PartState::kDrained;
    Touch(part.worker);
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

// When the job is to be warned of its time limit; none where it was, or need not be.
std::optional<int64_t> Yard::Impl::WarningDeadline(AttemptId id, const LiveAttempt& live) const {
  const int64_t warning_us = ledger_.job(id.job).submission->time_limit_warning_us;
  if (warning_us == 0 || live.is_warned) return std::nullopt;
  const auto limit = TimeLimitDeadline(id, live);
  return limit.has_value() ? std::optional<int64_t>(*limit - warning_us) : std::nullopt;
}

// By then the supervisor has killed the ranks by itself: their lease is renewed only while the
// worker has news from here, and counts from before its last report arrived here.
int64_t Yard::Impl::LostDeadline(const Contact& contact, JobId job) const {
  if (TY_BUG(lost_with_the_lease)) return contact.unreachable_since_us;
  return contact.unreachable_since_us + ledger_.job(job).submission->disconnect_keep_us +
         config_.lease_grace_us + config_.lost_margin_us;
}

bool Yard::Impl::HasHoldingParts(const std::string& worker) const {
  const auto on = live_on_.find(worker);
  return on != live_on_.end() &&
         std::any_of(on->second.begin(), on->second.end(), [&](const AttemptId& id) {
           return HoldsDevices(FindPart(ledger_.attempt(id), worker)->state);
         });
}

std::optional<int64_t> Yard::Impl::WorkerDeadline(const std::string& name) const {
  const Contact& contact = contacts_.at(name);
  const WorkerRecord& worker = ledger_.worker(name);
  if (std::holds_alternative<worker_fsm::Active>(worker.state)) return contact.lease_deadline_us;
  if (!std::holds_alternative<worker_fsm::Unreachable>(worker.state)) return std::nullopt;
  if (!HasHoldingParts(name)) return contact.unreachable_since_us + config_.gone_after_us;
  std::optional<int64_t> next;
  for (const AttemptId& id : live_on_.at(name)) {
    if (!HoldsDevices(FindPart(ledger_.attempt(id), name)->state)) continue;
    TakeEarlier(next, LostDeadline(contact, id.job));
  }
  return next;
}

std::optional<int64_t> Yard::Impl::AttemptDeadline(AttemptId id) const {
  const LiveAttempt& live = live_.at(id);
  std::optional<int64_t> next = live.drain_deadline_us;
  if (const auto limit = TimeLimitDeadline(id, live)) TakeEarlier(next, *limit);
  if (const auto warning = WarningDeadline(id, live)) TakeEarlier(next, *warning);
  const bool waits_to_stop = live.stop.has_value() &&
                             !std::holds_alternative<job_fsm::Stopping>(ledger_.job(id.job).state);
  if (waits_to_stop) TakeEarlier(next, live.stop->deadline_us);
  return next;
}

std::optional<int64_t> Yard::Impl::NextDeadline() const {
  std::optional<int64_t> next = NextPass();
  if (const auto worker = worker_timers_.Earliest()) TakeEarlier(next, *worker);
  if (const auto attempt = attempt_timers_.Earliest()) TakeEarlier(next, *attempt);
  if (const auto wake = wakes_.Earliest()) TakeEarlier(next, *wake);
  return next;
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
