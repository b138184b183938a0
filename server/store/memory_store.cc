// Keeps everything in one snapshot, and refuses what a database would refuse.
#include "server/store/memory_store.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace trainyard::store {

absl::StatusOr<core::Snapshot> MemoryStore::Load() {
  const std::lock_guard lock(mutex_);
  return snapshot_;
}

// The check comes before any change, so that a refused delta leaves no trace.
absl::Status MemoryStore::Check(const core::Delta& delta) const {
  if (delta.revision != snapshot_.revision + 1) {
    return absl::FailedPreconditionError(absl::StrCat("commit of revision ", delta.revision,
                                                      "; the store is at ", snapshot_.revision));
  }
  std::set<JobId> new_jobs;
  for (const core::JobRecord& job : delta.jobs) {
    if (job.id.value >= snapshot_.next_job) {
      new_jobs.insert(job.id);
    } else if (snapshot_.jobs.count(job.id) == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(JobName(job.id), " is not new and not stored"));
    }
  }
  const auto is_job = [&](JobId job) {
    return snapshot_.jobs.count(job) > 0 || new_jobs.count(job) > 0;
  };
  for (const core::AttemptRecord& attempt : delta.attempts) {
    if (!is_job(attempt.id.job)) {
      return absl::InvalidArgumentError(
          absl::StrCat(AttemptName(attempt.id), " belongs to no job"));
    }
  }
  for (const core::CheckpointRecord& checkpoint : delta.checkpoints) {
    if (!is_job(checkpoint.id.job)) {
      return absl::InvalidArgumentError(absl::StrCat(
          CheckpointName(checkpoint.id.job, checkpoint.id.step), " belongs to no job"));
    }
  }
  int64_t last_event = events_.empty() ? 0 : events_.back().sequence;
  for (const core::EventRecord& event : delta.events) {
    if (event.sequence <= last_event) {
      return absl::InvalidArgumentError(
          absl::StrCat("event ", event.sequence, " does not follow event ", last_event));
    }
    last_event = event.sequence;
  }
  return absl::OkStatus();
}

absl::Status MemoryStore::Commit(const core::Delta& delta) {
  const std::lock_guard lock(mutex_);
  TY_RETURN_IF_ERROR(Check(delta));
  core::Snapshot& next = snapshot_;
  next.revision = delta.revision;
  next.next_job = delta.next_job;
  next.next_event = delta.next_event;
  next.pool_time_us = delta.pool_time_us;
  for (const JobId id : delta.kept_submissions) {
    next.kept_submissions.insert_or_assign(id, SubmissionOf(id, delta));
  }
  for (const JobId id : delta.deleted_submissions) next.kept_submissions.erase(id);
  for (const JobId id : delta.deleted_jobs) DeleteJob(id);
  for (const auto& job : delta.jobs) next.jobs.insert_or_assign(job.id, job);
  for (const auto& attempt : delta.attempts) next.attempts.insert_or_assign(attempt.id, attempt);
  for (const auto& worker : delta.workers) next.workers.insert_or_assign(worker.name, worker);
  for (const core::CheckpointRef& id : delta.deleted_checkpoints) next.checkpoints.erase(id);
  for (const core::CheckpointRecord& checkpoint : delta.checkpoints) {
    next.checkpoints.insert_or_assign(checkpoint.id, checkpoint);
  }
  for (const auto& request : delta.requests) next.requests.emplace(request.request_id, request);
  for (const auto& quota : delta.quotas) next.quotas.insert_or_assign(quota.subject, quota);
  for (const std::string& subject : delta.deleted_quotas) next.quotas.erase(subject);
  for (const core::ReservationRecord& reservation : delta.reservations) {
    next.reservations.insert_or_assign(reservation.name, reservation);
  }
  for (const std::string& name : delta.deleted_reservations) next.reservations.erase(name);
  if (delta.usage_changed) {
    next.usage.clear();
    for (const core::UsageRecord& usage : delta.usage) {
      next.usage.emplace(core::UsageKey(usage.project, usage.user), usage);
    }
  }
  events_.insert(events_.end(), delta.events.begin(), delta.events.end());
  return absl::OkStatus();
}

// Returns the submission of the jobs that are about to be deleted.
core::Submission MemoryStore::SubmissionOf(JobId id, const core::Delta& delta) const {
  for (const JobId deleted : delta.deleted_jobs) {
    const auto job = snapshot_.jobs.find(deleted);
    if (job == snapshot_.jobs.end()) continue;
    if ((job->second.array == JobId{} ? deleted : job->second.array) == id) {
      return *job->second.submission;
    }
  }
  return {};
}

void MemoryStore::DeleteJob(JobId id) {
  snapshot_.jobs.erase(id);
  std::erase_if(snapshot_.attempts, [&](const auto& entry) { return entry.first.job == id; });
  std::erase_if(events_, [&](const core::EventRecord& event) {
    return core::EventParent(event.resource) == JobName(id);
  });
}

absl::StatusOr<std::vector<core::EventRecord>> MemoryStore::ListEvents(absl::string_view parent,
                                                                       int64_t after_sequence,
                                                                       int64_t limit) {
  const std::lock_guard lock(mutex_);
  limit = std::min(limit, kEventPageMax);
  std::vector<core::EventRecord> page;
  for (const core::EventRecord& event : events_) {
    if (static_cast<int64_t>(page.size()) >= limit) break;
    if (event.sequence <= after_sequence) continue;
    if (!parent.empty() && core::EventParent(event.resource) != parent) continue;
    page.push_back(event);
  }
  return page;
}

}  // namespace trainyard::store
