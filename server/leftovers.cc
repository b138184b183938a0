// Finds the files of the state directory that the database does not know, and moves them aside.
#include "server/leftovers.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "common/base/ids.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "server/core/yard/deletion.h"
#include "server/store/sqlite/sqlite_metrics_store.h"

namespace trainyard {

namespace {

// A job that was deleted has no other event any more.
constexpr int64_t kEventsOfDeleted = 10;

// A job that has ended gets no new attempts, so it has no orphans and need not be searched.
absl::StatusOr<bool> MayHaveOrphans(const core::Snapshot& stored, store::Store& store, JobId job) {
  const auto found = stored.jobs.find(job);
  if (found != stored.jobs.end()) return !core::job_fsm::IsFinal(found->second.state);
  TY_ASSIGN_OR_RETURN(const bool was_deleted, WasDeleted(stored, store, job));
  return !was_deleted;
}

absl::StatusOr<std::set<AttemptId>> OrphanedLogs(const core::Snapshot& stored, store::Store& store,
                                                 const runtime::LogStore& logs) {
  std::set<AttemptId> orphans;
  TY_ASSIGN_OR_RETURN(const std::vector<JobId> jobs, logs.ListJobs());
  for (const JobId job : jobs) {
    TY_ASSIGN_OR_RETURN(const bool may_have, MayHaveOrphans(stored, store, job));
    if (!may_have) continue;
    TY_ASSIGN_OR_RETURN(const std::vector<AttemptId> attempts, logs.ListAttempts(job));
    for (const AttemptId attempt : attempts) {
      if (!stored.attempts.contains(attempt)) orphans.insert(attempt);
    }
  }
  return orphans;
}

absl::StatusOr<std::set<AttemptId>> OrphanedMetrics(const core::Snapshot& stored,
                                                    store::Store& store,
                                                    store::MetricsStore& metrics) {
  std::set<AttemptId> orphans;
  TY_ASSIGN_OR_RETURN(const std::vector<AttemptId> attempts, metrics.ListAttempts());
  for (const AttemptId attempt : attempts) {
    if (stored.attempts.contains(attempt)) continue;
    TY_ASSIGN_OR_RETURN(const bool was_deleted, WasDeleted(stored, store, attempt.job));
    if (!was_deleted) orphans.insert(attempt);
  }
  return orphans;
}

}  // namespace

absl::StatusOr<bool> WasDeleted(store::Store& store, JobId job) {
  TY_ASSIGN_OR_RETURN(const std::vector<core::EventRecord> events,
                      store.ListEvents(JobName(job), 0, kEventsOfDeleted));
  return std::any_of(events.begin(), events.end(), [](const core::EventRecord& event) {
    return event.type == core::kJobDeleted;
  });
}

absl::StatusOr<bool> WasDeleted(const core::Snapshot& stored, store::Store& store, JobId job) {
  return stored.jobs.contains(job) ? absl::StatusOr<bool>(false) : WasDeleted(store, job);
}

absl::StatusOr<DeletedStreams> FindDeletedStreams(const core::Snapshot& stored, store::Store& store,
                                                  const runtime::LogStore& logs,
                                                  store::MetricsStore& metrics) {
  TY_ASSIGN_OR_RETURN(const std::vector<JobId> logged, logs.ListJobs());
  TY_ASSIGN_OR_RETURN(const std::vector<AttemptId> attempts, metrics.ListAttempts());
  std::set<JobId> measured;
  for (const AttemptId attempt : attempts) measured.insert(attempt.job);
  DeletedStreams deleted;
  const auto take = [&](JobId job, bool core::JobRecord::*are_deleted,
                        std::set<JobId>& jobs) -> absl::Status {
    const auto found = stored.jobs.find(job);
    const bool stays = found != stored.jobs.end() && !(found->second.*are_deleted);
    if (stays) return absl::OkStatus();
    TY_ASSIGN_OR_RETURN(const bool was_deleted, WasDeleted(stored, store, job));
    if (found != stored.jobs.end() || was_deleted) jobs.insert(job);
    return absl::OkStatus();
  };
  for (const JobId job : logged) {
    TY_RETURN_IF_ERROR(take(job, &core::JobRecord::logs_deleted, deleted.logs));
  }
  for (const JobId job : measured) {
    TY_RETURN_IF_ERROR(take(job, &core::JobRecord::metrics_deleted, deleted.metrics));
  }
  return deleted;
}

std::string OrphanFolder(const std::string& state_dir, absl::Time now) {
  return JoinPath(state_dir, absl::FormatTime("orphans/%Y%m%dT%H%M%SZ", now, absl::UTCTimeZone()));
}

absl::Status SetStreamsAside(const core::Snapshot& stored, store::Store& store,
                             const std::string& state_dir, const std::string& folder,
                             runtime::LogStore& logs, store::MetricsStore& metrics) {
  TY_ASSIGN_OR_RETURN(std::set<AttemptId> orphans, OrphanedLogs(stored, store, logs));
  TY_ASSIGN_OR_RETURN(std::set<AttemptId> measured, OrphanedMetrics(stored, store, metrics));
  for (const AttemptId attempt : orphans) {
    TY_RETURN_IF_ERROR(logs.SetAside(attempt, JoinPath(folder, "logs")));
  }
  if (!measured.empty()) {
    TY_RETURN_IF_ERROR(MakeDirectories(folder, 0700));
    TY_RETURN_IF_ERROR(store::CopySqliteMetrics(JoinPath(state_dir, "metrics.db"),
                                                JoinPath(folder, "metrics.db")));
    for (const AttemptId attempt : measured) TY_RETURN_IF_ERROR(metrics.DeleteAttempt(attempt));
  }
  orphans.merge(measured);
  if (orphans.empty()) return absl::OkStatus();
  LogWarning(
      "the database does not know attempts that have logs or metrics here, as after the restore of "
      "an older backup; they are moved aside, and can be deleted once nobody wants them",
      {{"attempts", absl::StrCat(orphans.size())},
       {"first", AttemptName(*orphans.begin())},
       {"last", AttemptName(*orphans.rbegin())},
       {"folder", folder}});
  return absl::OkStatus();
}

void SetBlobsAside(const std::string& folder, runtime::BlobStore& blobs,
                   const runtime::Board& board) {
  const int64_t moved = blobs.SetUnreferencedAside(
      JoinPath(folder, "blobs"),
      [&board](const std::string& hash) { return board.IsReferenced(hash); });
  if (moved == 0) return;
  LogWarning(
      "the database names no checkpoint for some files; they are moved aside, and can be deleted "
      "once nobody wants them",
      {{"files", absl::StrCat(moved)}, {"folder", folder}});
}

}  // namespace trainyard
