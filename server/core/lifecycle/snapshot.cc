// Applies a commit to the records in plain code. The stores that are not databases use it.
#include "server/core/lifecycle/snapshot.h"

#include <set>

namespace trainyard::core {
namespace {

template <typename Rows, typename Map, typename KeyOf>
void PutAll(const Rows& rows, Map& map, const KeyOf& key_of) {
  for (const auto& row : rows) map.insert_or_assign(key_of(row), row);
}

// Keeps the submissions that have to stay. It must run before the deleted jobs are erased, because
// it takes the submissions from them.
void KeepSubmissions(const Delta& delta, Snapshot& snapshot) {
  const std::set<JobId> kept(delta.kept_submissions.begin(), delta.kept_submissions.end());
  for (const JobId id : delta.deleted_jobs) {
    const auto job = snapshot.jobs.find(id);
    if (job == snapshot.jobs.end()) continue;
    const JobId submission = job->second.array == JobId{} ? id : job->second.array;
    if (kept.count(submission) > 0) {
      snapshot.kept_submissions.insert_or_assign(submission, *job->second.submission);
    }
  }
}

void EraseJob(JobId id, Snapshot& snapshot) {
  snapshot.jobs.erase(id);
  std::erase_if(snapshot.attempts, [id](const auto& entry) { return entry.first.job == id; });
}

}  // namespace

void Apply(const Delta& delta, Snapshot& snapshot) {
  snapshot.revision = delta.revision;
  snapshot.next_job = delta.next_job;
  snapshot.next_event = delta.next_event;
  snapshot.pool_time_us = delta.pool_time_us;
  KeepSubmissions(delta, snapshot);
  for (const JobId id : delta.deleted_submissions) snapshot.kept_submissions.erase(id);
  for (const JobId id : delta.deleted_jobs) EraseJob(id, snapshot);
  PutAll(delta.jobs, snapshot.jobs, [](const auto& row) { return row.id; });
  PutAll(delta.attempts, snapshot.attempts, [](const auto& row) { return row.id; });
  PutAll(delta.workers, snapshot.workers, [](const auto& row) { return row.name; });
  for (const std::string& name : delta.deleted_workers) snapshot.workers.erase(name);
  for (const CheckpointRef& id : delta.deleted_checkpoints) snapshot.checkpoints.erase(id);
  PutAll(delta.checkpoints, snapshot.checkpoints, [](const auto& row) { return row.id; });
  PutAll(delta.requests, snapshot.requests, [](const auto& row) { return row.request_id; });
  PutAll(delta.quotas, snapshot.quotas, [](const auto& row) { return row.subject; });
  for (const std::string& subject : delta.deleted_quotas) snapshot.quotas.erase(subject);
  PutAll(delta.reservations, snapshot.reservations, [](const auto& row) { return row.name; });
  for (const std::string& name : delta.deleted_reservations) snapshot.reservations.erase(name);
  if (delta.usage_changed) {
    snapshot.usage.clear();
    PutAll(delta.usage, snapshot.usage,
           [](const UsageRecord& row) { return UsageKey(row.project, row.user); });
  }
}

}  // namespace trainyard::core
