#include "server/store/memory_store.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace trainyard::store {

absl::StatusOr<core::Snapshot> MemoryStore::Load() {
  const std::lock_guard lock(mutex_);
  return snapshot_;
}

absl::Status MemoryStore::Commit(const core::Delta& delta) {
  const std::lock_guard lock(mutex_);
  if (delta.revision != snapshot_.revision + 1) {
    return absl::FailedPreconditionError(absl::StrCat(
        "commit of revision ", delta.revision, "; the store stands at ", snapshot_.revision));
  }
  // Built aside, so that a refused delta leaves nothing.
  core::Snapshot next = snapshot_;
  next.revision = delta.revision;
  next.next_job = delta.next_job;
  next.next_event = delta.next_event;
  for (const core::JobRecord& job : delta.jobs) next.jobs.insert_or_assign(job.id, job);
  for (const core::AttemptRecord& attempt : delta.attempts) {
    if (next.jobs.count(attempt.id.job) == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(AttemptName(attempt.id), " belongs to no job"));
    }
    next.attempts.insert_or_assign(attempt.id, attempt);
  }
  for (const core::WorkerRecord& worker : delta.workers) {
    next.workers.insert_or_assign(worker.name, worker);
  }
  for (const core::CheckpointRef& id : delta.deleted_checkpoints) next.checkpoints.erase(id);
  for (const core::CheckpointRecord& checkpoint : delta.checkpoints) {
    if (next.jobs.count(checkpoint.id.job) == 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          CheckpointName(checkpoint.id.job, checkpoint.id.step), " belongs to no job"));
    }
    next.checkpoints.insert_or_assign(checkpoint.id, checkpoint);
  }
  for (const core::RequestRecord& request : delta.requests) {
    if (!next.requests.emplace(request.request_id, request).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("request id '", request.request_id, "' is stored already"));
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
  events_.insert(events_.end(), delta.events.begin(), delta.events.end());
  snapshot_ = std::move(next);
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
