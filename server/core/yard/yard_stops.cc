// Stops that lose no work: a checkpoint is asked for, and the attempt stops once it is committed,
// or when that takes too long. Preemption, drain and growth share this. What is freed is kept for
// the job that it was freed for (a claim) until that job is placed or gives it up.
//
// None of it is stored: after a restart the next pass nominates anew, and a worker that drains is
// drained on.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/planted_bug.h"
#include "server/core/yard/yard_impl.h"

namespace trainyard::core {
namespace {

job_fsm::Input StopInput(StopReason reason, std::string detail) {
  switch (reason) {
    case StopReason::kPreempt:
      return job_fsm::Preempt{std::move(detail)};
    case StopReason::kResize:
      return job_fsm::Resize{std::move(detail)};
    default:
      return job_fsm::Drain{std::move(detail)};
  }
}

}  // namespace

void Yard::Impl::AskForCheckpoint(AttemptId id) {
  ++live_.at(id).checkpoint_request;
  TouchWorkersOf(ledger_.attempt(id));
}

// An attempt that has not run yet has nothing to save: it stops at once.
void Yard::Impl::RequestStop(AttemptId id, PendingStop stop, absl::string_view actor, Now now) {
  LiveAttempt& live = live_.at(id);
  const JobState& state = ledger_.job(id.job).state;
  if (live.stop.has_value() || std::holds_alternative<job_fsm::Stopping>(state)) return;
  const bool runs = std::holds_alternative<job_fsm::Running>(state);
  if (runs) {
    ledger_.AddEvent(now.wall_us, JobName(id.job), "CHECKPOINT_REQUESTED", actor, stop.detail);
    AskForCheckpoint(id);
  }
  live.stop = std::move(stop);
  if (!runs || TY_BUG(skip_the_checkpoint_wait)) FireStop(id, actor, now);
}

void Yard::Impl::FireStop(AttemptId id, absl::string_view actor, Now now) {
  if (std::holds_alternative<job_fsm::Stopping>(ledger_.job(id.job).state)) return;  // it has fired
  const PendingStop stop = live_.at(id).stop.value();
  if (stop.reason == StopReason::kPreempt) ++ledger_.EditJob(id.job).preemptions;
  TY_CHECK_OK(StepJob(id.job, StopInput(stop.reason, stop.detail), actor, "", now));
}

void Yard::Impl::Claim(JobId job, const std::vector<DeviceKey>& devices) {
  for (const DeviceKey& device : devices) {
    claims_[device] = job;
    stale_workers_.insert(device.first);
  }
}

void Yard::Impl::DropClaims(JobId job) {
  for (auto it = claims_.begin(); it != claims_.end();) {
    if (it->second != job || TY_BUG(never_drop_claims)) {
      ++it;
      continue;
    }
    stale_workers_.insert(it->first.first);
    it = claims_.erase(it);
    plan_again_ = true;
  }
}

void Yard::Impl::Nominate(const Preemption& preemption, Now now) {
  DropClaims(preemption.job);  // of a nomination before, one of whose devices has failed since
  Claim(preemption.job, preemption.devices);
  for (const Victim& victim : preemption.victims) {
    const JobRecord& job = ledger_.job(victim.job);
    const bool shrinks = !victim.keep.empty();
    PendingStop stop;
    stop.reason = shrinks ? StopReason::kResize : StopReason::kPreempt;
    stop.claimant = preemption.job;
    stop.deadline_us = now.uptime_us + config_.checkpoint_wait_us;
    stop.detail =
        shrinks ? absl::StrCat("goes on with ", victim.keep.size(), " devices; the others go to ",
                               JobName(preemption.job))
                : absl::StrCat("its devices go to ", JobName(preemption.job),
                               running_.at(victim.job).guest ? ", which kept them"
                                                             : ", which has a higher priority");
    Claim(victim.job, victim.keep);
    RequestStop({victim.job, job.attempt}, std::move(stop), "scheduler", now);
  }
}

void Yard::Impl::StartGrowth(const Growth& growth, Now now) {
  const JobRecord& job = ledger_.job(growth.job);
  PendingStop stop;
  stop.reason = StopReason::kResize;
  stop.claimant = growth.job;
  stop.deadline_us = now.uptime_us + config_.checkpoint_wait_us;
  stop.detail = absl::StrCat("goes on with ", growth.devices.size(), " devices");
  Claim(growth.job, growth.devices);
  RequestStop({growth.job, job.attempt}, std::move(stop), "scheduler", now);
}

// The claimant no longer needs what was to be freed for it: who has not been stopped yet goes on.
void Yard::Impl::Withdraw(JobId claimant, Now now) {
  // Most jobs end without having claimed anything, and there may be many attempts.
  const bool has_claims =
      std::any_of(claims_.begin(), claims_.end(),
                  [claimant](const auto& claim) { return claim.second == claimant; });
  if (!has_claims) return;
  DropClaims(claimant);
  for (auto& [id, live] : live_) {
    if (!live.stop.has_value() || live.stop->claimant != claimant) continue;
    if (std::holds_alternative<job_fsm::Stopping>(ledger_.job(id.job).state)) continue;
    live.stop.reset();
    attempt_timers_.Set(id, AttemptDeadline(id));
    DropClaims(id.job);
    ledger_.AddEvent(now.wall_us, JobName(id.job), "STOP_WITHDRAWN", "scheduler",
                     absl::StrCat(JobName(claimant), " no longer needs its devices"));
  }
}

// A claim whose job could not be placed though nothing more is to come would keep devices idle.
bool Yard::Impl::WithdrawIdleClaims(Now now) {
  std::set<JobId> claimants;
  for (const auto& [device, job] : claims_) claimants.insert(job);
  if (claimants.empty()) return false;
  for (const auto& [id, live] : live_) {
    if (live.stop.has_value()) {
      claimants.erase(live.stop->claimant);
      claimants.erase(id.job);
    }
    // Whatever else it stops for, its devices will be free.
    const AttemptRecord& attempt = ledger_.attempt(id);
    if (!std::holds_alternative<attempt_fsm::Stopping>(attempt.state)) continue;
    for (const RankPlacement& rank : attempt.ranks) {
      const auto claim = claims_.find({rank.worker, rank.device});
      if (claim != claims_.end()) claimants.erase(claim->second);
    }
  }
  for (const JobId& job : claimants) Withdraw(job, now);
  return !claimants.empty();
}

void Yard::Impl::DrainAttempts(const std::string& worker, int64_t within_us,
                               absl::string_view actor, Now now) {
  const auto on = live_on_.find(worker);
  if (on == live_on_.end()) return;
  const std::set<AttemptId> attempts = on->second;
  if (TY_BUG(drain_without_stopping)) return;
  for (const AttemptId& id : attempts) {
    PendingStop stop;
    stop.reason = StopReason::kDrain;
    stop.detail = absl::StrCat("worker ", worker, " is being drained");
    stop.deadline_us = now.uptime_us + (within_us > 0 ? within_us : config_.checkpoint_wait_us);
    RequestStop(id, std::move(stop), actor, now);
  }
}

}  // namespace trainyard::core
