// Keeps of each job the few numbers by which the counts change when the job changes.
#include "server/metrics/yard_counts.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/string_view.h"

namespace trainyard::metrics {
namespace {

// The search of the longest wait looks at no more queued jobs of a project than this.
constexpr int kLookedAtMax = 256;
constexpr char kCheckpointCommitted[] = "CHECKPOINT_COMMITTED";

std::string Word(absl::string_view text) {
  return absl::AsciiStrToLower(text);
}

template <size_t... kIndexes>
std::array<std::string, sizeof...(kIndexes)> StateWords(std::index_sequence<kIndexes...>) {
  return {Word(std::variant_alternative_t<kIndexes, core::JobState>::kName)...};
}

const core::Failure* FailureOf(const core::AttemptState& state) {
  if (const auto* failed = std::get_if<core::attempt_fsm::Failed>(&state)) return &failed->failure;
  if (const auto* lost = std::get_if<core::attempt_fsm::Lost>(&state)) return &lost->failure;
  return nullptr;
}

bool IsRunning(const core::AttemptRecord& attempt) {
  return std::holds_alternative<core::attempt_fsm::Running>(attempt.state);
}

// Returns the one state of a device that decides whether jobs get it.
absl::string_view DeviceState(const core::WorkerRecord& worker, const core::DeviceRecord& device,
                              bool is_held) {
  if (!std::holds_alternative<core::worker_fsm::Active>(worker.state)) return "offline";
  if (!device.quarantine.empty() || device.health == core::DeviceHealth::kQuarantined) {
    return "quarantined";
  }
  if (worker.scheduling != core::Scheduling::kEligible) return "draining";
  if (is_held) return "busy";
  if (device.health == core::DeviceHealth::kUnmanagedUse) return "unmanaged";
  return "free";
}

absl::string_view WorkerStateOf(const core::WorkerRecord& worker) {
  if (!std::holds_alternative<core::worker_fsm::Active>(worker.state)) {
    return core::worker_fsm::Name(worker.state);
  }
  if (worker.scheduling == core::Scheduling::kEligible) return core::worker_fsm::Active::kName;
  return core::Text(worker.scheduling);
}

prometheus::MetricFamily CountsOf(prometheus::MetricFamily family, const char* label,
                                  const std::map<std::string, int64_t>& counts) {
  for (const auto& [word, count] : counts) {
    AddValue(family, {{label, word}}, static_cast<double>(count));
  }
  return family;
}

}  // namespace

void YardCounts::Load(const core::Snapshot& stored) {
  const MutexLock lock(&mutex_);
  // The projects with the most jobs are those that are told apart.
  std::map<std::string, int64_t> jobs_of;
  for (const auto& [id, job] : stored.jobs) ++jobs_of[job.submission->project];
  std::vector<std::pair<int64_t, std::string>> largest;
  for (const auto& [project, jobs] : jobs_of) largest.emplace_back(-jobs, project);
  std::sort(largest.begin(), largest.end());
  for (const auto& [jobs, project] : largest) projects_.Of(project);
  for (const auto& [id, attempt] : stored.attempts) PutAttempt(attempt);
  for (const auto& [id, checkpoint] : stored.checkpoints) PutCheckpoint(checkpoint);
  for (const auto& [id, job] : stored.jobs) {
    const auto attempt = stored.attempts.find({id, job.attempt});
    const int64_t ended_us = attempt == stored.attempts.end() ? 0 : attempt->second.end_us;
    // Use and retries from before this start are no growth.
    Job& known = jobs_[id.value];
    known.retries = job.retries;
    known.preemptions = job.preemptions;
    known.device_time_us = job.device_time_us;
    PutJob(job, std::max(job.create_us, ended_us));
  }
  for (const auto& [name, worker] : stored.workers) workers_[name] = worker;
}

void YardCounts::Take(const core::Delta& delta, absl::Time now) {
  const int64_t now_us = absl::ToUnixMicros(now);
  const MutexLock lock(&mutex_);
  for (const core::AttemptRecord& attempt : delta.attempts) PutAttempt(attempt);
  for (const core::CheckpointRecord& checkpoint : delta.checkpoints) PutCheckpoint(checkpoint);
  for (const core::JobRecord& job : delta.jobs) PutJob(job, now_us);
  for (const JobId job : delta.deleted_jobs) DropJob(job);
  for (const core::WorkerRecord& worker : delta.workers) workers_[worker.name] = worker;
  for (const std::string& worker : delta.deleted_workers) workers_.erase(worker);
  for (const core::EventRecord& event : delta.events) {
    if (event.type == kCheckpointCommitted && event.actor != core::kImportedActor) ++checkpoints_;
  }
}

void YardCounts::PutJob(const core::JobRecord& record, int64_t queued_us) {
  const auto [found, is_new] = jobs_.try_emplace(record.id.value);
  Job& job = found->second;
  if (job.submission == nullptr) {
    job.submission = record.submission;
    job.project = &projects_.Of(record.submission->project);
    // A program may save nothing, so its training is no less safe for it.
    job.saves_checkpoints = record.submission->work.length > 0;
    job.state = static_cast<uint8_t>(kJobStates);
  }
  // An imported job has done its work elsewhere.
  const bool is_counted = !record.submission->is_imported();
  if (is_counted) {
    retries_ += std::max(0, record.retries - job.retries);
    preemptions_ += std::max(0, record.preemptions - job.preemptions);
    job.project->device_time_us += std::max<int64_t>(0, record.device_time_us - job.device_time_us);
  }
  job.retries = record.retries;
  job.preemptions = record.preemptions;
  job.device_time_us = record.device_time_us;
  const auto* queued = std::get_if<core::job_fsm::Queued>(&record.state);
  const auto state = static_cast<uint8_t>(record.state.index());
  const bool was_queued = job.queued_us != 0;
  if (was_queued) job.project->queued.erase({job.queued_us, record.id});
  if (queued != nullptr) {
    // A job that only changed while it waits has waited since it began to.
    const int64_t since_us = was_queued ? job.queued_us : queued_us;
    job.queued_us = std::max({since_us, queued->not_before_us, record.submission->not_before_us});
    job.project->queued.emplace(job.queued_us, record.id);
  } else {
    job.queued_us = 0;
  }
  if (job.state != state) {
    if (job.state < kJobStates) --by_state_[job.state];
    ++by_state_[state];
    job.state = state;
  }
  job.end_us.reset();
  if (core::job_fsm::IsFinal(record.state)) job.end_us = record.end_us;
}

void YardCounts::DropJob(JobId id) {
  const auto found = jobs_.find(id.value);
  if (found == jobs_.end()) return;
  Job& job = found->second;
  if (job.queued_us != 0) job.project->queued.erase({job.queued_us, id});
  --by_state_[job.state];
  safe_us_.erase(id);
  jobs_.erase(found);
}

void YardCounts::PutAttempt(const core::AttemptRecord& attempt) {
  if (core::attempt_fsm::IsFinal(attempt.state)) {
    // Only the first record of an end finds the attempt here. One that was imported never does.
    if (live_.erase(attempt.id) == 0) return;
    safe_us_.erase(attempt.id.job);
    if (const core::Failure* failure = FailureOf(attempt.state)) {
      ++failures_[failure->failure_class];
    }
    return;
  }
  auto& held = live_[attempt.id];
  held.clear();
  for (const core::AttemptPart& part : attempt.parts) {
    if (!core::HoldsDevices(part.state)) continue;
    for (const core::RankPlacement& rank : attempt.ranks) {
      if (rank.worker != part.worker || rank.device.empty()) continue;
      held.emplace_back(rank.worker, rank.device);
    }
  }
  if (IsRunning(attempt)) {
    safe_us_.try_emplace(attempt.id.job, attempt.start_us);
  } else {
    safe_us_.erase(attempt.id.job);
  }
}

void YardCounts::PutCheckpoint(const core::CheckpointRecord& checkpoint) {
  const auto safe = safe_us_.find(checkpoint.id.job);
  if (safe == safe_us_.end()) return;
  safe->second = std::max(safe->second, checkpoint.create_us);
}

// Returns the time at which the last of those ended for which the job waits, or nothing while one
// of them goes on.
std::optional<int64_t> YardCounts::ReadySince(const Job& job) const {
  int64_t ready_us = 0;
  for (const core::Dependency& dependency : job.submission->dependencies) {
    const auto other = jobs_.find(dependency.job.value);
    if (other == jobs_.end()) continue;
    if (!other->second.end_us.has_value()) return std::nullopt;
    ready_us = std::max(ready_us, *other->second.end_us);
  }
  return ready_us;
}

int64_t YardCounts::LongestWait(const ProjectCounts& counts, int64_t now_us) const {
  int64_t first_us = now_us;
  int looked_at = 0;
  // Nobody could have started before it was queued.
  for (const auto& [since_us, id] : counts.queued) {
    if (since_us >= first_us || looked_at++ == kLookedAtMax) break;
    const std::optional<int64_t> ready_us = ReadySince(jobs_.at(id.value));
    if (ready_us.has_value()) first_us = std::min(first_us, std::max(since_us, *ready_us));
  }
  return now_us - first_us;
}

void YardCounts::CollectQueue(int64_t now_us, const std::set<std::string>& private_projects,
                              Families& families) const {
  prometheus::MetricFamily queued =
      Gauge("trainyard_queue_jobs", "The number of jobs that wait, by project.");
  prometheus::MetricFamily wait =
      Gauge("trainyard_queue_oldest_wait_seconds",
            "The time for which the job of the project that has waited longest could have started. "
            "Jobs that wait for a time or for other jobs are left out, and only the 256 that have "
            "been queued longest are looked at.");
  prometheus::MetricFamily used =
      Counter("trainyard_device_seconds_total",
              "The time for which jobs of the project have held devices, times the number of "
              "devices, since the server started.");
  projects_.Visit(private_projects,
                  [&](const std::string& label, const std::vector<const ProjectCounts*>& counts) {
                    size_t jobs = 0;
                    int64_t oldest_us = 0;
                    int64_t device_time_us = 0;
                    for (const ProjectCounts* project : counts) {
                      jobs += project->queued.size();
                      oldest_us = std::max(oldest_us, LongestWait(*project, now_us));
                      device_time_us += project->device_time_us;
                    }
                    AddValue(queued, {{"project", label}}, static_cast<double>(jobs));
                    AddValue(wait, {{"project", label}}, Seconds(oldest_us));
                    AddValue(used, {{"project", label}}, Seconds(device_time_us));
                  });
  families.push_back(std::move(queued));
  families.push_back(std::move(wait));
  families.push_back(std::move(used));
}

void YardCounts::CollectJobs(int64_t now_us, Families& families) const {
  static const auto* words =
      new std::array<std::string, kJobStates>(StateWords(std::make_index_sequence<kJobStates>()));
  prometheus::MetricFamily jobs = Gauge(
      "trainyard_jobs", "The number of jobs that the server has, by state. Old jobs are deleted.");
  for (size_t state = 0; state < kJobStates; ++state) {
    AddValue(jobs, {{"state", (*words)[state]}}, static_cast<double>(by_state_[state]));
  }
  families.push_back(std::move(jobs));
  families.push_back(
      OneCounter("trainyard_retries_total",
                 "The number of times that a job was queued again after a failure that counts "
                 "against its retries.",
                 static_cast<double>(retries_)));
  families.push_back(OneCounter("trainyard_preemptions_total",
                                "The number of attempts that were stopped for a better claim.",
                                static_cast<double>(preemptions_)));
  prometheus::MetricFamily failures =
      Counter("trainyard_attempt_failures_total",
              "The number of attempts that have failed or were lost, by the class of the failure.");
  for (const core::FailureClass kind :
       {core::FailureClass::kUserError, core::FailureClass::kTransient,
        core::FailureClass::kHardware, core::FailureClass::kLost, core::FailureClass::kPoison}) {
    const auto count = failures_.find(kind);
    AddValue(failures, {{"class", Word(core::Text(kind))}},
             count == failures_.end() ? 0 : static_cast<double>(count->second));
  }
  families.push_back(std::move(failures));
  families.push_back(OneCounter("trainyard_checkpoints_committed_total",
                                "The number of checkpoints that were committed.",
                                static_cast<double>(checkpoints_)));
  int64_t oldest_us = 0;
  for (const auto& [id, safe_us] : safe_us_) {
    const auto job = jobs_.find(id.value);
    if (job == jobs_.end() || !job->second.saves_checkpoints) continue;
    oldest_us = std::max(oldest_us, now_us - safe_us);
  }
  families.push_back(
      OneGauge("trainyard_checkpoint_oldest_age_seconds",
               "The age of the newest checkpoint of the running job for which it is oldest, or the "
               "time for which the job has run without one. Programs are left out.",
               Seconds(oldest_us)));
}

void YardCounts::CollectFleet(Families& families) const {
  std::set<std::pair<std::string, std::string>> held;
  for (const auto& [id, devices_of] : live_) held.insert(devices_of.begin(), devices_of.end());
  std::map<std::string, int64_t> workers = {
      {"active", 0}, {"cordoned", 0}, {"draining", 0}, {"unreachable", 0}, {"gone", 0}};
  std::map<std::string, int64_t> devices = {{"free", 0},        {"busy", 0},    {"draining", 0},
                                            {"quarantined", 0}, {"offline", 0}, {"unmanaged", 0}};
  for (const auto& [name, worker] : workers_) {
    ++workers[Word(WorkerStateOf(worker))];
    for (const core::DeviceRecord& device : worker.devices) {
      ++devices[std::string(DeviceState(worker, device, held.contains({name, device.name})))];
    }
  }
  families.push_back(
      CountsOf(Gauge("trainyard_workers", "The number of workers, by state."), "state", workers));
  families.push_back(CountsOf(Gauge("trainyard_devices",
                                    "The number of devices, by state. A device has one state: the "
                                    "devices of workers that take no new ranks are draining."),
                              "state", devices));
}

Families YardCounts::Collect(absl::Time now, const std::set<std::string>& private_projects) const {
  const int64_t now_us = absl::ToUnixMicros(now);
  Families families;
  const MutexLock lock(&mutex_);
  CollectJobs(now_us, families);
  CollectQueue(now_us, private_projects, families);
  CollectFleet(families);
  return families;
}

}  // namespace trainyard::metrics
