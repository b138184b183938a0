// Counts by subject for quotas, and charges attempts for the devices that they hold.
#include "server/core/yard/accounts.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"
#include "server/core/scheduling/eligibility.h"
#include "server/core/scheduling/quota.h"

namespace trainyard::core {
namespace {

// Use decays in steps, 64 of which halve it. This is 2^(-1/64) in units of 2^-32.
constexpr int64_t kDecaySteps = 64;
constexpr int64_t kDecayFactor = 4'248'701'965;
// Running attempts are charged, and the accounts are stored, at least this often.
constexpr int64_t kKeepInterval = kMinute;
// While nothing runs, use only decays, so this interval may be longer.
constexpr int64_t kIdleKeepInterval = 10 * kMinute;
// Owners are warned when they have stored 8 of 10 parts of what they may.
constexpr int64_t kWarnedParts = 8;
constexpr int64_t kWarnedOf = 10;

int64_t Decayed(int64_t value, int64_t steps) {
  // After 64 x 40 steps nothing is left of any int64.
  for (int64_t i = 0; i < std::min<int64_t>(steps, kDecaySteps * 64) && value > 0; ++i) {
    value = static_cast<int64_t>((static_cast<__int128>(value) * kDecayFactor) >> 32);
  }
  return value;
}

int64_t CountOf(const std::map<std::string, int64_t>& counts, const std::string& subject) {
  const auto found = counts.find(subject);
  return found == counts.end() ? 0 : found->second;
}

void Add(std::map<std::string, int64_t>& counts, const Submission& submission, int64_t change) {
  counts[absl::StrCat("user:", submission.user)] += change;
  if (!submission.project.empty()) counts[absl::StrCat("project:", submission.project)] += change;
}

// Returns the subjects of a submission that have a quota, with it.
std::vector<std::pair<std::string, const QuotaRecord*>> QuotasOf(
    const std::map<std::string, QuotaRecord>& quotas, const Submission& submission) {
  std::vector<std::pair<std::string, const QuotaRecord*>> found;
  for (const auto& [kind, name] : {std::pair<std::string, std::string>{"user", submission.user},
                                   {"project", submission.project}}) {
    const QuotaRecord* quota = QuotaFor(quotas, kind, name);
    if (quota == nullptr || name.empty()) continue;
    found.emplace_back(absl::StrCat(kind, ":", name), quota);
  }
  return found;
}

// Returns what the jobs cost of the budget of a minute.
int64_t PriceOf(int64_t jobs, const QuotaRecord& quota) {
  return jobs * kMinute / quota.submits_per_minute;
}

// Returns what the rank counts for fair share.
int64_t MilliOf(const Snapshot& snapshot, const RankPlacement& rank) {
  const auto worker = snapshot.workers.find(rank.worker);
  if (!rank.device.empty() || worker == snapshot.workers.end()) return kWholeDevice;
  return MilliDevices(DeviceShare(worker->second), rank.held);
}

}  // namespace

Accounts::Accounts(const Config& config, int64_t pool_time_us, Now now)
    : decay_step_us_(std::max<int64_t>(config.usage_half_life_us / kDecaySteps, 1)),
      kept_us_(now.uptime_us),
      decayed_pool_us_(pool_time_us / decay_step_us_ * decay_step_us_) {}

int64_t Accounts::UsedBudget(const std::string& subject, Now now) const {
  const auto found = submits_by_.find(subject);
  if (found == submits_by_.end()) return 0;
  const SubmitBudget& budget = found->second;
  return std::max<int64_t>(budget.used_us - (now.uptime_us - budget.as_of_us), 0);
}

absl::Status Accounts::CheckSubmission(const std::map<std::string, QuotaRecord>& quotas,
                                       const Submission& submission, Now now) const {
  const int64_t jobs = std::max(submission.array_size, 1);
  for (const auto& [subject, quota] : QuotasOf(quotas, submission)) {
    const Demand& demand = submission.demand;
    const int32_t devices = demand.is_deviceless ? 0 : demand.least();
    if (quota->devices > 0 && devices > quota->devices) {
      return error::QuotaExceeded(subject, "devices of one job", devices, quota->devices);
    }
    const int64_t cpus = int64_t{demand.resources.cpus} * demand.least();
    if (quota->held.cpus > 0 && cpus > quota->held.cpus) {
      return error::QuotaExceeded(subject, "cpus of one job", cpus, quota->held.cpus);
    }
    const int64_t memory_bytes = demand.resources.memory_bytes * demand.least();
    if (quota->held.memory_bytes > 0 && memory_bytes > quota->held.memory_bytes) {
      return error::QuotaExceeded(subject, "bytes of memory of one job", memory_bytes,
                                  quota->held.memory_bytes);
    }
    const int64_t queued = CountOf(queued_by_, subject) + jobs;
    if (quota->queued_jobs > 0 && queued > quota->queued_jobs) {
      return error::QuotaExceeded(subject, "queued jobs", queued, quota->queued_jobs);
    }
  }
  TY_RETURN_IF_ERROR(CheckStored(quotas, submission, 0));
  return CheckRate(quotas, submission, now);
}

absl::Status Accounts::CheckStored(const std::map<std::string, QuotaRecord>& quotas,
                                   const Submission& submission, int64_t bytes) const {
  for (const auto& [subject, quota] : QuotasOf(quotas, submission)) {
    const int64_t stored = CountOf(stored_by_, subject);
    const bool is_full = stored >= quota->stored_bytes || bytes > quota->stored_bytes - stored;
    if (quota->stored_bytes > 0 && is_full) {
      return error::QuotaExceeded(subject, "bytes of checkpoints, logs and metrics", stored + bytes,
                                  quota->stored_bytes);
    }
  }
  return absl::OkStatus();
}

absl::Status Accounts::CheckRate(const std::map<std::string, QuotaRecord>& quotas,
                                 const Submission& submission, Now now) const {
  const int64_t jobs = std::max(submission.array_size, 1);
  for (const auto& [subject, quota] : QuotasOf(quotas, submission)) {
    if (quota->submits_per_minute == 0) continue;
    const int64_t used_us = UsedBudget(subject, now);
    if (used_us + PriceOf(jobs, *quota) > kMinute) {
      return error::QuotaExceeded(subject, "submissions in a minute",
                                  jobs + used_us * quota->submits_per_minute / kMinute,
                                  quota->submits_per_minute);
    }
  }
  return absl::OkStatus();
}

void Accounts::ChargeSubmission(const std::map<std::string, QuotaRecord>& quotas,
                                const Submission& submission, Now now) {
  const int64_t jobs = std::max(submission.array_size, 1);
  for (const auto& [subject, quota] : QuotasOf(quotas, submission)) {
    if (quota->submits_per_minute == 0) continue;
    const int64_t used_us = UsedBudget(subject, now) + PriceOf(jobs, *quota);
    submits_by_[subject] = {used_us, now.uptime_us};
  }
}

void Accounts::CountQueued(const Submission& submission, int64_t change) {
  Add(queued_by_, submission, change);
}

void Accounts::CountStored(const Submission& submission, int64_t bytes) {
  Add(stored_by_, submission, bytes);
}

void Accounts::NoteStreams(const Submission& submission, JobId job, StreamBytes bytes) {
  const auto [known, is_new] = streams_.try_emplace(job);
  Add(stored_by_, submission, bytes.sum() - known->second.sum());
  known->second = bytes;
}

const StreamBytes* Accounts::FindStreams(JobId job) const {
  const auto found = streams_.find(job);
  return found == streams_.end() ? nullptr : &found->second;
}

void Accounts::ForgetStreams(const Submission& submission, JobId job) {
  NoteStreams(submission, job, {});
  streams_.erase(job);
}

int64_t Accounts::StoredBy(const std::string& subject) const {
  return CountOf(stored_by_, subject);
}

std::vector<std::string> Accounts::WarningsOf(const std::map<std::string, QuotaRecord>& quotas,
                                              const Submission& submission) const {
  std::vector<std::string> warnings;
  for (const auto& [subject, quota] : QuotasOf(quotas, submission)) {
    const int64_t stored = StoredBy(subject);
    if (quota->stored_bytes == 0 || stored / kWarnedParts < quota->stored_bytes / kWarnedOf)
      continue;
    warnings.push_back(absl::StrCat(
        subject, " stores ", FormatBytes(stored), " of the ", FormatBytes(quota->stored_bytes),
        " that its quota allows; beyond them, nothing more can be submitted. `trainyard usage "
        "--largest 10` shows what takes the space"));
  }
  return warnings;
}

void Accounts::Charge(Ledger& ledger, AttemptId id, LiveAttempt& live, Now now) {
  const AttemptRecord& attempt = ledger.attempt(id);
  int64_t milli = 0;
  for (const RankPlacement& rank : attempt.ranks) {
    if (HoldsDevices(FindPart(attempt, rank.worker)->state)) {
      milli += MilliOf(ledger.snapshot(), rank);
    }
  }
  const int64_t used = milli * (now.uptime_us - live.charged_us) / kWholeDevice;
  live.charged_us = now.uptime_us;
  if (used <= 0) return;
  JobRecord& job = ledger.EditJob(id.job);
  job.device_time_us += used;
  UsageRecord& usage = ledger.EditUsage()[{job.submission->project, job.submission->user}];
  usage.project = job.submission->project;
  usage.user = job.submission->user;
  usage.device_us += used;
}

void Accounts::Keep(Ledger& ledger, LiveAttempts& live, Now now) {
  const bool is_idle = live.all().empty();
  const int64_t elapsed = now.uptime_us - kept_us_;
  if (elapsed < (is_idle ? kIdleKeepInterval : kKeepInterval)) return;
  kept_us_ = now.uptime_us;
  if (is_idle && ledger.snapshot().usage.empty()) return;
  ledger.AddPoolTime(elapsed);
  for (auto& [id, attempt] : live.all()) Charge(ledger, id, attempt, now);
  const int64_t steps = (ledger.snapshot().pool_time_us - decayed_pool_us_) / decay_step_us_;
  if (steps <= 0) return;
  decayed_pool_us_ += steps * decay_step_us_;
  std::map<UsageKey, UsageRecord>& all = ledger.EditUsage();
  for (auto it = all.begin(); it != all.end();) {
    it->second.device_us = Decayed(it->second.device_us, steps);
    it = it->second.device_us == 0 ? all.erase(it) : std::next(it);
  }
}

std::map<UsageKey, UsageRecord> Accounts::Usage(const Ledger& ledger, const LiveAttempts& live,
                                                Now now) {
  std::map<UsageKey, UsageRecord> usage = ledger.snapshot().usage;
  for (const auto& [id, attempt] : live.all()) {
    const Submission& submission = *ledger.job(id.job).submission;
    UsageRecord& record = usage[{submission.project, submission.user}];
    record.project = submission.project;
    record.user = submission.user;
    int64_t milli = 0;
    for (const RankPlacement& rank : ledger.attempt(id).ranks) {
      milli += MilliOf(ledger.snapshot(), rank);
    }
    record.device_us +=
        milli * std::max<int64_t>(now.uptime_us - attempt.charged_us, 0) / kWholeDevice;
  }
  return usage;
}

}  // namespace trainyard::core
