// Places jobs: prepares what a pass looks at, carries out its decisions, and explains why jobs
// wait.
#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "server/core/yard/stepper.h"
#include "server/core/yard/timers.h"
#include "server/core/yard/yard.h"

namespace trainyard::core {
namespace {

// Returns a text such as "lab-1: cpu-0,cpu-1; lab-2: cpu-0".
std::string PlacesText(const std::vector<RankPlacement>& ranks) {
  std::map<std::string, std::string> devices;  // by worker
  for (const RankPlacement& rank : ranks) {
    std::string& text = devices[rank.worker];
    const std::string place =
        !rank.device.empty() ? rank.device : absl::StrCat(rank.held.cpus, " cpus");
    absl::StrAppend(&text, text.empty() ? "" : ",", place);
  }
  std::string text;
  for (const auto& [worker, names] : devices) {
    absl::StrAppend(&text, text.empty() ? "" : "; ", worker, ": ", names);
  }
  return text;
}

std::vector<const DeviceRecord*> DevicesOf(const Ledger& ledger,
                                           const std::vector<RankPlacement>& ranks) {
  std::vector<const DeviceRecord*> devices;
  for (const RankPlacement& rank : ranks) {
    for (const DeviceRecord& device : ledger.worker(rank.worker).devices) {
      if (device.name == rank.device) devices.push_back(&device);
    }
  }
  TY_CHECK(devices.size() == ranks.size());
  return devices;
}

}  // namespace

// Some decisions change with time alone: a minimum runtime is over, devices have been free for long
// enough to grow, a reservation begins. Besides, new jobs may have been made to wait for a later
// pass, so that many submissions do not cause as many passes.
std::optional<int64_t> Yard::NextPass() const {
  const Config& config = state_.config;
  std::optional<int64_t> next = state_.reservations.deadline_us();
  // If growth may come before the next regular pass, the pass is made then, but not many times a
  // second.
  const int64_t interval_us = std::max(std::min(config.replan_us, config.grow_after_us), kSecond);
  if (!state_.live.all().empty()) TakeEarlier(next, planned_at_.uptime_us + interval_us);
  if (state_.changes.has_new_jobs) {
    const bool is_long = static_cast<int64_t>(picture_.queue().size()) >= config.long_queue;
    TakeEarlier(next, planned_at_.uptime_us + (is_long ? config.pass_interval_us : 0));
  }
  return next;
}

bool Yard::MakePlan(Now now) {
  planned_at_ = now;
  state_.changes.has_new_jobs = false;
  EnforceReservations(now);
  RefreshJobs();
  picture_.RefreshPool(state_);
  picture_.RefreshRunning(state_, now);
  const Plan plan = policy_->MakePlan(picture_.Input(state_, now));
  bool again = false;
  for (const GangPlacement& placement : plan.placements) again |= Start(placement, now);
  for (const Preemption& preemption : plan.preemptions) Nominate(preemption, now);
  for (const Growth& growth : plan.growths) Grow(growth, now);
  again |= Stepper(state_, now).WithdrawIdleClaims();
  record_ = plan.record;
  front_ = plan.front;
  RefreshJobs();  // what was placed has left the queue
  ShowReasons(now);
  return again;
}

// Jobs on reserved devices that have no right to them are stopped, after a checkpoint.
void Yard::EnforceReservations(Now now) {
  std::set<std::string> workers = state_.reservations.Refresh(state_.ledger, now);
  if (workers.empty()) return;
  state_.changes.workers.merge(workers);
  for (const auto& [id, job] : picture_.queue().jobs()) state_.changes.jobs.insert(id);
  Stepper stepper(state_, now);
  for (const auto& [id, live] : state_.live.all()) {
    state_.changes.jobs.insert(id.job);
    const std::set<std::string> own =
        ReservationsOf(snapshot(), *state_.ledger.job(id.job).submission);
    for (const RankPlacement& rank : state_.ledger.attempt(id).ranks) {
      const std::string* reservation = state_.reservations.On({rank.worker, rank.device});
      if (reservation == nullptr || own.count(*reservation) > 0) continue;
      PendingStop stop;
      stop.detail = absl::StrCat("reservation ", *reservation, " has begun on device ", rank.device,
                                 " of worker ", rank.worker);
      stop.deadline_us = now.uptime_us + state_.config.checkpoint_wait_us;
      stepper.RequestStop(id, std::move(stop), "scheduler");
      break;
    }
  }
}

// Jobs of users whom a worker has just named are told apart from those of others from now on.
void Yard::RefreshJobs() {
  if (const auto named = state_.contacts.TakeNewlyNamed(); !named.empty()) {
    for (const auto& [id, job] : picture_.queue().jobs()) {
      if (named.contains(job.user)) state_.changes.jobs.insert(id);
    }
  }
  for (const JobId& id : picture_.RefreshJobs(state_)) {
    if (reasons_.erase(id) > 0) turn_.reasons_changed.insert(id);
  }
}

// The fencing token grows in the transaction that allocates the devices. Returns true if the job
// had claims, since it may have started on other devices.
bool Yard::Start(const GangPlacement& placement, Now now) {
  const JobId id = placement.job;
  TY_CHECK_OK(CheckPlacement(picture_.pool(), *picture_.queue().Find(id), placement.ranks));
  picture_.Hold(id, placement.ranks);
  Stepper stepper(state_, now);
  JobRecord& job = state_.ledger.EditJob(id);
  ++job.attempt;
  ++job.fencing_token;
  AttemptRecord attempt;
  attempt.id = {id, job.attempt};
  attempt.fencing_token = job.fencing_token;
  attempt.ranks = placement.ranks;
  std::set<std::string> workers;
  for (const RankPlacement& rank : attempt.ranks) workers.insert(rank.worker);
  for (const std::string& worker : workers) {
    attempt.parts.push_back({worker, PartState::kAssigned, {}});
  }
  attempt.resume_from = ResumePoint(snapshot(), job);
  attempt.create_us = now.wall_us;
  attempt.guest_of = placement.guest_of;
  job.worker_version = state_.ledger.worker(attempt.ranks.front().worker).version;
  const bool decides_precision =
      job.submission->auto_precision && job.precision == Precision::kNone;
  if (decides_precision) {
    job.precision = AutoPrecision(DevicesOf(state_.ledger, attempt.ranks));
  }
  LiveAttempt& live = state_.live.Add(attempt);
  live.placed_us = now.uptime_us;
  live.charged_us = now.uptime_us;
  live.safe_since_us = now.uptime_us;
  stepper.TouchWorkersOf(attempt);
  const bool had_claims = stepper.Withdraw(id);
  std::string text = absl::StrCat("on ", PlacesText(attempt.ranks));
  if (decides_precision) {
    absl::StrAppend(&text, job.precision == Precision::kBf16 ? ", in bf16" : ", in f32");
  }
  if (attempt.resume_from.has_value()) {
    absl::StrAppend(&text, ", from ",
                    CheckpointName(attempt.resume_from->job, attempt.resume_from->step));
  } else if (!CheckpointsOf(id).empty()) {
    absl::StrAppend(&text, ", from the beginning, because all its checkpoints are damaged");
  }
  if (placement.guest_of != JobId{}) {
    absl::StrAppend(&text, ", as a guest of ", JobName(placement.guest_of));
  }
  const AttemptId attempt_id = attempt.id;
  state_.ledger.AddAttempt(std::move(attempt));
  state_.ledger.AddEvent(now.wall_us, AttemptName(attempt_id), "ATTEMPT_PLACED", "scheduler",
                         std::move(text));
  TY_CHECK_OK(stepper.StepJob(id, job_fsm::Placed{}, "scheduler",
                              absl::StrCat("attempt ", attempt_id.number, " placed")));
  return had_claims;
}

void Yard::Nominate(const Preemption& preemption, Now now) {
  Stepper stepper(state_, now);
  // These are left of an earlier nomination of which a device has failed.
  stepper.DropClaims(preemption.job);
  stepper.Claim(preemption.job, preemption.devices);
  for (const Victim& victim : preemption.victims) {
    const bool shrinks = !victim.keep.empty();
    PendingStop stop;
    stop.reason = shrinks ? StopReason::kResize : StopReason::kPreempt;
    stop.claimant = preemption.job;
    stop.deadline_us = now.uptime_us + state_.config.checkpoint_wait_us;
    stop.detail = shrinks ? absl::StrCat("continues with ", victim.keep.size(),
                                         " devices; the others go to ", JobName(preemption.job))
                          : absl::StrCat("its devices go to ", JobName(preemption.job),
                                         picture_.running().at(victim.job).guest
                                             ? ", which kept them"
                                             : ", which has a higher priority");
    stepper.Claim(victim.job, victim.keep);
    stepper.RequestStop({victim.job, state_.ledger.job(victim.job).attempt}, std::move(stop),
                        "scheduler");
  }
}

void Yard::Grow(const Growth& growth, Now now) {
  Stepper stepper(state_, now);
  PendingStop stop;
  stop.reason = StopReason::kResize;
  stop.claimant = growth.job;
  stop.deadline_us = now.uptime_us + state_.config.checkpoint_wait_us;
  stop.detail = absl::StrCat("continues with ", growth.devices.size(), " devices");
  stepper.Claim(growth.job, growth.devices);
  stepper.RequestStop({growth.job, state_.ledger.job(growth.job).attempt}, std::move(stop),
                      "scheduler");
}

void Yard::ShowReasons(Now now) {
  const PassInput input = picture_.Input(state_, now);
  for (const JobId& id : front_) {
    if (picture_.queue().Find(id) == nullptr) continue;
    std::vector<std::string> reasons = record_->Reasons(input, id);
    std::vector<std::string>& known = reasons_[id];
    if (known == reasons) continue;
    known = std::move(reasons);
    turn_.reasons_changed.insert(id);
  }
}

std::vector<std::string> Yard::QueueReasons(JobId job) const {
  const auto known = reasons_.find(job);
  if (known != reasons_.end()) return known->second;
  const JobRecord* record = FindJob(job);
  if (record == nullptr) return {};
  if (const AttemptId newest{job, record->attempt}; state_.live.Find(newest) != nullptr) {
    return ContactRemarks(state_, newest);
  }
  if (record_ == nullptr || picture_.queue().Find(job) == nullptr) return {};
  return record_->Reasons(picture_.Input(state_, planned_at_), job);
}

std::vector<JobId> Yard::QueueFront() const {
  std::vector<JobId> front;
  for (const JobId& id : front_) {
    if (picture_.queue().Find(id) != nullptr) front.push_back(id);
  }
  return front;
}

std::map<JobId, std::set<int32_t>> Yard::WantedOf(const std::string& provider, Now now) const {
  std::map<JobId, std::set<int32_t>> wanted;
  if (picture_.queue().size() == 0) return wanted;
  for (const PossibleWorkers& possible : state_.possible) {
    if (possible.provider != provider || possible.count == 0) continue;
    Pool pool = picture_.pool();
    const size_t real = pool.size();
    Picture::AddPossible(possible, pool);
    std::map<std::string, int32_t> numbers;
    for (size_t i = real; i < pool.size(); ++i) {
      numbers[pool[i].name] = static_cast<int32_t>(i - real);
    }
    const PassInput input = picture_.Input(state_, now);
    const Plan plan =
        policy_->MakePlan({input.config, pool, input.queue, input.running, input.usage,
                           input.quotas, input.reservations, input.now, input.speeds});
    for (const GangPlacement& placement : plan.placements) {
      for (const RankPlacement& rank : placement.ranks) {
        const auto number = numbers.find(rank.worker);
        if (number != numbers.end()) wanted[placement.job].insert(number->second);
      }
    }
  }
  return wanted;
}

Explanation Yard::Explain(JobId job, Now now, const AcceptChange& accept) const {
  const QueuedJob* queued = picture_.queue().Find(job);
  if (queued == nullptr || record_ == nullptr) return {};
  PassInput input = picture_.Input(state_, now);
  if (accept) input.accept = &accept;
  Explanation explanation = record_->Explain(input, *queued);
  for (const PossibleWorkers& possible : state_.possible) {
    if (!WantedOf(possible.provider, now).contains(job)) continue;
    explanation.infeasible = false;
    explanation.reasons.push_back(absl::StrCat("provider ", possible.provider,
                                               " could bring workers on which it would start"));
  }
  return explanation;
}

Explanation Yard::Preview(const Submission& submission, Now now, const AcceptChange& accept) const {
  PassInput input = picture_.Input(state_, now);
  if (accept) input.accept = &accept;
  const auto record = record_ != nullptr ? record_ : policy_->MakePlan(input).record;
  return record->Explain(input, PreviewJob(state_, submission, now));
}

}  // namespace trainyard::core
