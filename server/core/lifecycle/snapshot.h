// Holds the records of the server together: all of them at one moment, and those that one turn
// changed.
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
  // The submissions whose jobs were all deleted, but of which clones still exist, by the number of
  // the job that came with each.
  std::map<JobId, Submission> kept_submissions;
  // The time that the server has run in all: the uptimes of all starts added up. Use decays by this
  // time, so that neither a jump of the wall clock nor a pause changes anybody's share.
  int64_t pool_time_us = 0;

  friend bool operator==(const Snapshot&, const Snapshot&) = default;
};

// The changes of one turn, which are one transaction. Rows are complete and replace those with the
// same key. Jobs numbered from the previous commit's `next_job` on are new. The first job of an
// array comes before the others.
struct Delta {
  int64_t revision = 0;  // the revision of the store after the commit: one more than before
  int64_t next_job = 1;
  int64_t next_event = 1;
  std::vector<JobRecord> jobs;
  // The jobs that were deleted, with their attempts and their history. They are jobs of earlier
  // turns.
  std::vector<JobId> deleted_jobs;
  // Submissions that have lost their last job. The first ones are kept, the others are dropped.
  std::vector<JobId> kept_submissions;
  std::vector<JobId> deleted_submissions;
  std::vector<AttemptRecord> attempts;
  std::vector<WorkerRecord> workers;
  std::vector<std::string> deleted_workers;
  std::vector<CheckpointRecord> checkpoints;
  std::vector<CheckpointRef> deleted_checkpoints;
  std::vector<EventRecord> events;  // ascending by sequence
  std::vector<RequestRecord> requests;
  std::vector<QuotaRecord> quotas;
  std::vector<std::string> deleted_quotas;
  std::vector<ReservationRecord> reservations;
  std::vector<std::string> deleted_reservations;
  bool usage_changed = false;
  std::vector<UsageRecord> usage;  // all of it if any of it has changed, else nothing
  int64_t pool_time_us = 0;        // as of this commit

  bool empty() const {
    return jobs.empty() && deleted_jobs.empty() && deleted_submissions.empty() &&
           attempts.empty() && workers.empty() && deleted_workers.empty() && checkpoints.empty() &&
           deleted_checkpoints.empty() && events.empty() && requests.empty() && quotas.empty() &&
           deleted_quotas.empty() && reservations.empty() && deleted_reservations.empty() &&
           !usage_changed;
  }
};

// Applies `delta`, which must be the next one. The snapshot then holds what a store holds after the
// commit.
void Apply(const Delta& delta, Snapshot& snapshot);

}  // namespace trainyard::core
