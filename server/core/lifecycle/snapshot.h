// The records of the server together: everything at one moment, and what one loop turn changed.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "server/core/lifecycle/records.h"

namespace trainyard::core {

// Everything that the server remembers, except events and metrics, which only the store holds.
struct Snapshot {
  int64_t revision = 0;
  int64_t next_job = 1;
  int64_t next_event = 1;
  std::map<JobId, JobRecord> jobs;
  std::map<AttemptId, AttemptRecord> attempts;
  std::map<std::string, WorkerRecord> workers;
  std::map<CheckpointRef, CheckpointRecord> checkpoints;
  std::map<std::string, RequestRecord> requests;
  std::map<std::string, QuotaRecord> quotas;  // by subject
  std::map<std::string, ReservationRecord> reservations;
  std::map<UsageKey, UsageRecord> usage;
  // What was submitted and has no jobs any more, because they were deleted, but clones: by the
  // number of the job that came with it.
  std::map<JobId, Submission> kept_submissions;
  // How long the pool has been looked after, in all: uptime added up over all starts of the server.
  // Usage decays by it, so that no jump of a wall clock and no pause changes anybody's share.
  int64_t pool_time_us = 0;

  friend bool operator==(const Snapshot&, const Snapshot&) = default;
};

// What one loop turn changed: one transaction. Rows are whole and replace those of the same key.
// Jobs are new from the `next_job` of the commit before on; the first of an array comes before the
// others.
struct Delta {
  int64_t revision = 0;  // of the store once it is committed: one more than before
  int64_t next_job = 1;
  int64_t next_event = 1;
  std::vector<JobRecord> jobs;
  // Their attempts and their history go with them; of jobs of a turn before.
  std::vector<JobId> deleted_jobs;
  // Submissions that have lost their last job: they stay, or go.
  std::vector<JobId> kept_submissions;
  std::vector<JobId> deleted_submissions;
  std::vector<AttemptRecord> attempts;
  std::vector<WorkerRecord> workers;
  std::vector<CheckpointRecord> checkpoints;
  std::vector<CheckpointRef> deleted_checkpoints;
  std::vector<EventRecord> events;  // ascending by sequence
  std::vector<RequestRecord> requests;
  std::vector<QuotaRecord> quotas;
  std::vector<std::string> deleted_quotas;
  std::vector<ReservationRecord> reservations;
  std::vector<std::string> deleted_reservations;
  bool usage_changed = false;
  std::vector<UsageRecord> usage;  // where it has changed: all of it
  int64_t pool_time_us = 0;        // as of this commit

  bool empty() const {
    return jobs.empty() && deleted_jobs.empty() && deleted_submissions.empty() &&
           attempts.empty() && workers.empty() && checkpoints.empty() &&
           deleted_checkpoints.empty() && events.empty() && requests.empty() && quotas.empty() &&
           deleted_quotas.empty() && reservations.empty() && deleted_reservations.empty() &&
           !usage_changed;
  }
};

// Makes the snapshot what a store holds once `delta`, the next one, is committed.
void Apply(const Delta& delta, Snapshot& snapshot);

}  // namespace trainyard::core
