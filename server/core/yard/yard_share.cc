// What is shared among users, and by which rules: quotas, the use that fair share goes by,
// reservations, and devices and workers that are set aside.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/planted_bug.h"
#include "common/base/status_macros.h"
#include "server/core/yard/yard_impl.h"

namespace trainyard::core {
namespace {

// Use decays in steps: 64 of them halve it. 2^(-1/64) in units of 2^-32.
constexpr int64_t kDecaySteps = 64;
constexpr int64_t kDecayFactor = 4'248'701'965;
// Running attempts are charged, and the accounts stored, at least this often.
constexpr int64_t kAccountsInterval = kMinute;
// While nothing runs, use only decays.
constexpr int64_t kIdleAccountsInterval = 10 * kMinute;

int64_t Decayed(int64_t value, int64_t steps) {
  // 64 x 40 steps leave nothing of any int64.
  for (int64_t i = 0; i < std::min<int64_t>(steps, kDecaySteps * 64) && value > 0; ++i) {
    value = static_cast<int64_t>((static_cast<__int128>(value) * kDecayFactor) >> 32);
  }
  return value;
}

bool Overlaps(const ReservationRecord& a, const ReservationRecord& b) {
  if (a.end_us <= b.start_us || b.end_us <= a.start_us) return false;
  return std::any_of(a.devices.begin(), a.devices.end(), [&b](const auto& device) {
    return std::find(b.devices.begin(), b.devices.end(), device) != b.devices.end();
  });
}

bool HasRank(const AttemptRecord& attempt, int32_t rank, const std::string& worker) {
  return std::any_of(attempt.ranks.begin(), attempt.ranks.end(), [&](const RankPlacement& placed) {
    return placed.rank == rank && placed.worker == worker;
  });
}

}  // namespace

// Exact, else the one for all others. `kind`: "user" or "project".
const QuotaRecord* Yard::Impl::FindQuota(absl::string_view kind, const std::string& name) const {
  const auto& quotas = snapshot().quotas;
  auto found = quotas.find(absl::StrCat(kind, ":", name));
  if (found == quotas.end()) found = quotas.find(absl::StrCat(kind, ":*"));
  return found == quotas.end() ? nullptr : &found->second;
}

// Refuses before anything is counted.
absl::Status Yard::Impl::CheckQuotas(const Submission& submission, Now now) {
  const int64_t jobs = std::max(submission.array_size, 1);
  std::vector<std::pair<std::string, int64_t>> rates;  // subject, time that the jobs use of it
  for (const auto& [kind, name] : {std::pair<std::string, std::string>{"user", submission.user},
                                   {"project", submission.project}}) {
    if (name.empty()) continue;
    const QuotaRecord* quota = FindQuota(kind, name);
    if (quota == nullptr) continue;
    const std::string subject = absl::StrCat(kind, ":", name);
    const auto of = [&subject](const std::map<std::string, int64_t>& counts) {
      const auto found = counts.find(subject);
      return found == counts.end() ? int64_t{0} : found->second;
    };
    if (quota->devices > 0 && submission.demand.least() > quota->devices) {
      return error::QuotaExceeded(subject, "devices of one job", submission.demand.least(),
                                  quota->devices);
    }
    const int64_t extra = TY_BUG(queue_quota_off_by_one) ? 1 : 0;
    if (quota->queued_jobs > 0 && of(queued_by_) + jobs > quota->queued_jobs + extra) {
      return error::QuotaExceeded(subject, "queued jobs", of(queued_by_) + jobs,
                                  quota->queued_jobs);
    }
    if (quota->stored_bytes > 0 && of(stored_by_) >= quota->stored_bytes) {
      return error::QuotaExceeded(subject, "bytes of checkpoints", of(stored_by_),
                                  quota->stored_bytes);
    }
    if (quota->submits_per_minute > 0) {
      SubmitBudget& budget = submits_by_[subject];
      budget.used_us = std::max<int64_t>(budget.used_us - (now.uptime_us - budget.as_of_us), 0);
      budget.as_of_us = now.uptime_us;
      const int64_t price = jobs * kMinute / quota->submits_per_minute;
      if (budget.used_us + price > kMinute) {
        return error::QuotaExceeded(subject, "submissions in a minute",
                                    jobs + budget.used_us * quota->submits_per_minute / kMinute,
                                    quota->submits_per_minute);
      }
      rates.emplace_back(subject, price);
    }
  }
  for (const auto& [subject, price] : rates) submits_by_[subject].used_us += price;
  return absl::OkStatus();
}

void Yard::Impl::CountQueued(const Submission& submission, int64_t change) {
  queued_by_[absl::StrCat("user:", submission.user)] += change;
  if (!submission.project.empty()) {
    queued_by_[absl::StrCat("project:", submission.project)] += change;
  }
}

void Yard::Impl::CountStored(const CheckpointRecord& checkpoint, int64_t sign) {
  const auto job = snapshot().jobs.find(checkpoint.id.job);
  if (job == snapshot().jobs.end()) return;
  int64_t bytes = 0;
  for (const CheckpointFile& file : checkpoint.files) bytes += file.size;
  const Submission& submission = *job->second.submission;
  stored_by_[absl::StrCat("user:", submission.user)] += sign * bytes;
  if (!submission.project.empty()) {
    stored_by_[absl::StrCat("project:", submission.project)] += sign * bytes;
  }
}

absl::StatusOr<Reply> Yard::Impl::Apply(const SetQuota& in, Now now) {
  ledger_.PutQuota(in.quota);
  ledger_.AddEvent(now.wall_us, absl::StrCat("quotas/", in.quota.subject), "QUOTA_SET", in.actor,
                   "");
  plan_again_ = true;
  return Reply{};
}

absl::StatusOr<Reply> Yard::Impl::Apply(const DeleteQuota& in, Now now) {
  if (snapshot().quotas.count(in.subject) == 0) return Reply{};
  ledger_.DeleteQuota(in.subject);
  ledger_.AddEvent(now.wall_us, absl::StrCat("quotas/", in.subject), "QUOTA_DELETED", in.actor, "");
  plan_again_ = true;
  return Reply{};
}

// Reservations.

absl::StatusOr<Reply> Yard::Impl::Apply(const CreateReservation& in, Now now) {
  ReservationRecord made = in.reservation;
  if (snapshot().reservations.count(made.name) > 0) return error::ReservationExists(made.name);
  if (made.end_us <= made.start_us || made.end_us <= now.wall_us) {
    return absl::InvalidArgumentError(
        absl::StrCat("reservation '", made.name, "': it must end after it starts, and after now"));
  }
  const auto is_taken = [&](const DeviceKey& device) {
    ReservationRecord one = made;
    one.devices = {device};
    return std::any_of(snapshot().reservations.begin(), snapshot().reservations.end(),
                       [&one](const auto& other) { return Overlaps(one, other.second); });
  };
  if (made.devices.empty()) {
    // Free ones first.
    RefreshPool();
    for (const bool free : {true, false}) {
      for (const PoolWorker& worker : pool_) {
        for (const PoolDevice& device : worker.devices) {
          if (static_cast<int32_t>(made.devices.size()) == in.count) break;
          const DeviceKey key{worker.name, device.name};
          const bool fits = device.usable && (in.type.empty() || device.type == in.type);
          if (fits && (device.holder == JobId{}) == free && !is_taken(key)) {
            made.devices.push_back(key);
          }
        }
      }
    }
    if (static_cast<int32_t>(made.devices.size()) < in.count || in.count < 1) {
      return absl::FailedPreconditionError(
          absl::StrCat("reservation '", made.name, "': ", in.count, " devices",
                       in.type.empty() ? "" : absl::StrCat(" of type ", in.type),
                       " were asked for; ", made.devices.size(), " are not reserved at that time"));
    }
  }
  for (const DeviceKey& device : made.devices) {
    const auto worker = snapshot().workers.find(device.first);
    const bool is_there =
        worker != snapshot().workers.end() &&
        std::any_of(worker->second.devices.begin(), worker->second.devices.end(),
                    [&device](const DeviceRecord& have) { return have.name == device.second; });
    if (!is_there) return error::DeviceNotFound(device.first, device.second);
    if (is_taken(device)) {
      return absl::FailedPreconditionError(absl::StrCat("device ", device.second, " of worker ",
                                                        device.first,
                                                        " is reserved already at that time"));
    }
  }
  std::sort(made.devices.begin(), made.devices.end());
  const std::string name = made.name;
  ledger_.AddEvent(now.wall_us, absl::StrCat("reservations/", name), "RESERVATION_CREATED",
                   made.actor, absl::StrCat(made.devices.size(), " devices"));
  ledger_.PutReservation(std::move(made));
  reservation_deadline_us_ = now.uptime_us;
  plan_again_ = true;
  return Reply{};
}

absl::StatusOr<Reply> Yard::Impl::Apply(const DeleteReservation& in, Now now) {
  if (snapshot().reservations.count(in.name) == 0) return error::ReservationNotFound(in.name);
  ledger_.DeleteReservation(in.name);
  ledger_.AddEvent(now.wall_us, absl::StrCat("reservations/", in.name), "RESERVATION_DELETED",
                   in.actor, "");
  reservation_deadline_us_ = now.uptime_us;
  plan_again_ = true;
  return Reply{};
}

std::set<std::string> Yard::Impl::ReservationsOf(const Submission& submission) const {
  std::set<std::string> names;
  for (const auto& [name, reservation] : snapshot().reservations) {
    for (const std::string& subject : reservation.subjects) {
      if (subject == absl::StrCat("user:", submission.user) ||
          (!submission.project.empty() &&
           subject == absl::StrCat("project:", submission.project))) {
        names.insert(name);
      }
    }
  }
  return names;
}

// Which devices are reserved now; whoever is on them without a right to goes, after a checkpoint.
// Their times are people's times: this one decision goes by the server's wall clock.
void Yard::Impl::RefreshReservations(Now now) {
  if (snapshot().reservations.empty() && reserved_.empty()) {
    reservation_deadline_us_.reset();
    return;
  }
  std::map<DeviceKey, std::string> reserved;
  std::optional<int64_t> next_us;  // wall
  std::vector<std::string> over;
  for (const auto& [name, reservation] : snapshot().reservations) {
    if (reservation.end_us <= now.wall_us) {
      over.push_back(name);
      continue;
    }
    const bool has_begun = reservation.start_us <= now.wall_us;
    const int64_t change = has_begun ? reservation.end_us : reservation.start_us;
    if (!next_us.has_value() || change < *next_us) next_us = change;
    if (!has_begun) continue;
    for (const DeviceKey& device : reservation.devices) reserved[device] = name;
  }
  for (const std::string& name : over) {
    ledger_.DeleteReservation(name);
    ledger_.AddEvent(now.wall_us, absl::StrCat("reservations/", name), "RESERVATION_ENDED",
                     "server", "its time is over");
  }
  reservation_deadline_us_.reset();
  if (next_us.has_value()) reservation_deadline_us_ = now.uptime_us + *next_us - now.wall_us;
  if (reserved == reserved_) return;
  for (const auto* map : {&reserved, &reserved_}) {
    for (const auto& [device, name] : *map) stale_workers_.insert(device.first);
  }
  reserved_ = std::move(reserved);
  for (const auto& [id, job] : queue_.jobs()) stale_jobs_.insert(id);
  for (auto& [id, job] : running_) {
    job.reservations = ReservationsOf(*ledger_.job(id).submission);
    for (const RankPlacement& rank : job.ranks) {
      const auto found = reserved_.find({rank.worker, rank.device});
      if (found == reserved_.end() || job.reservations.count(found->second) > 0) continue;
      PendingStop stop;
      stop.detail = absl::StrCat("reservation ", found->second, " has begun on device ",
                                 rank.device, " of worker ", rank.worker);
      stop.deadline_us = now.uptime_us + config_.checkpoint_wait_us;
      RequestStop({id, ledger_.job(id).attempt}, std::move(stop), "scheduler", now);
      break;
    }
  }
}

// Use.

void Yard::Impl::Charge(AttemptId id, LiveAttempt& live, Now now) {
  const AttemptRecord& attempt = ledger_.attempt(id);
  int64_t devices = 0;
  for (const RankPlacement& rank : attempt.ranks) {
    if (HoldsDevices(FindPart(attempt, rank.worker)->state)) ++devices;
  }
  const int64_t used = devices * (now.uptime_us - live.charged_us);
  live.charged_us = now.uptime_us;
  if (used <= 0) return;
  JobRecord& job = ledger_.EditJob(id.job);
  job.device_time_us += used;
  UsageRecord& usage = ledger_.EditUsage()[{job.submission->project, job.submission->user}];
  usage.project = job.submission->project;
  usage.user = job.submission->user;
  usage.device_us += used;
}

int64_t Yard::Impl::DecayStep() const {
  return std::max<int64_t>(config_.usage_half_life_us / kDecaySteps, 1);
}

void Yard::Impl::KeepAccounts(Now now) {
  const int64_t elapsed = now.uptime_us - accounts_us_;
  if (elapsed < (live_.empty() ? kIdleAccountsInterval : kAccountsInterval)) return;
  accounts_us_ = now.uptime_us;
  if (live_.empty() && snapshot().usage.empty()) return;
  ledger_.AddPoolTime(elapsed);
  for (auto& [id, live] : live_) Charge(id, live, now);
  const int64_t step = DecayStep();
  const int64_t steps = (snapshot().pool_time_us - decayed_pool_us_) / step;
  if (steps <= 0) return;
  decayed_pool_us_ += steps * step;
  std::map<UsageKey, UsageRecord>& all = ledger_.EditUsage();
  for (auto it = all.begin(); it != all.end();) {
    it->second.device_us = Decayed(it->second.device_us, steps);
    it = it->second.device_us == 0 ? all.erase(it) : std::next(it);
  }
}

// With what has been used since the accounts were last kept.
std::map<UsageKey, UsageRecord> Yard::Impl::Usage(Now now) const {
  std::map<UsageKey, UsageRecord> usage = snapshot().usage;
  for (const auto& [id, live] : live_) {
    const Submission& submission = *ledger_.job(id.job).submission;
    UsageRecord& record = usage[{submission.project, submission.user}];
    record.project = submission.project;
    record.user = submission.user;
    record.device_us += static_cast<int64_t>(ledger_.attempt(id).ranks.size()) *
                        std::max<int64_t>(now.uptime_us - live.charged_us, 0);
  }
  return usage;
}

// Devices and workers set aside.

absl::StatusOr<Reply> Yard::Impl::Apply(const QuarantineDevice& in, Now now) {
  const auto worker = snapshot().workers.find(in.worker);
  if (worker == snapshot().workers.end()) return error::WorkerNotFound(WorkerName(in.worker));
  for (DeviceRecord& device : ledger_.EditWorker(in.worker).devices) {
    if (device.name != in.device) continue;
    device.quarantine = in.reason.empty() ? absl::StrCat("by ", in.actor) : in.reason;
    ledger_.AddEvent(now.wall_us, WorkerName(in.worker), "DEVICE_QUARANTINED", in.actor,
                     absl::StrCat(device.name, ": ", device.quarantine));
    Touch(in.worker);
    plan_again_ = true;
    return Reply{};
  }
  return error::DeviceNotFound(in.worker, in.device);
}

absl::StatusOr<Reply> Yard::Impl::Apply(const ReleaseDevice& in, Now now) {
  const auto worker = snapshot().workers.find(in.worker);
  if (worker == snapshot().workers.end()) return error::WorkerNotFound(WorkerName(in.worker));
  for (DeviceRecord& device : ledger_.EditWorker(in.worker).devices) {
    if (device.name != in.device) continue;
    if (device.quarantine.empty()) return Reply{};
    device.quarantine.clear();
    ledger_.AddEvent(now.wall_us, WorkerName(in.worker), "DEVICE_RELEASED", in.actor, device.name);
    Touch(in.worker);
    plan_again_ = true;
    return Reply{};
  }
  return error::DeviceNotFound(in.worker, in.device);
}

// The first failure of an attempt tells about the worker that it happened on. A hardware failure
// sets the rank's device aside; different jobs that fail in a row drain the worker.
void Yard::Impl::NoteFailure(const std::string& worker, AttemptId id, const Outcome& outcome,
                             Now now) {
  const Failure& failure = outcome.failure;
  // A rank whose peer was lost tells of another worker, and so may one that waited in vain.
  if (failure.failure_class == FailureClass::kUserError || failure.reason == "PEER_LOST" ||
      (failure.reason == "RANK_STUCK" &&
       !HasRank(ledger_.attempt(id), outcome.failed_rank, worker))) {
    return;
  }
  if (failure.failure_class == FailureClass::kHardware) {
    for (const RankPlacement& rank : ledger_.attempt(id).ranks) {
      if (rank.rank != outcome.failed_rank || rank.worker != worker) continue;
      const QuarantineDevice set_aside{
          worker, rank.device, "server",
          absl::StrCat(failure.message.empty() ? failure.reason : failure.message, " (",
                       AttemptName(id), ")")};
      Apply(set_aside, now).IgnoreError();  // it may have gone from the worker since
    }
    return;
  }
  std::vector<JobId>& failed = ledger_.EditWorker(worker).failed_jobs;
  if (std::find(failed.begin(), failed.end(), id.job) == failed.end()) failed.push_back(id.job);
  if (static_cast<int32_t>(failed.size()) < config_.worker_failures_max) return;
  std::string jobs;
  for (const JobId& job : failed) absl::StrAppend(&jobs, jobs.empty() ? "" : ", ", JobName(job));
  failed.clear();
  Apply(DrainWorker{worker, "server", absl::StrCat("different jobs failed there in a row: ", jobs),
                    0},
        now)
      .IgnoreError();  // the worker is there
}

}  // namespace trainyard::core
