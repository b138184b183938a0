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
  core::Apply(delta, snapshot_);
  for (const JobId id : delta.deleted_jobs) {
    std::erase_if(events_, [id](const core::EventRecord& event) {
      return core::EventParent(event.resource) == JobName(id);
    });
  }
  events_.insert(events_.end(), delta.events.begin(), delta.events.end());
  return absl::OkStatus();
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
