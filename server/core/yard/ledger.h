// Holds the records of the yard, and knows which of them the present turn has changed.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/core/lifecycle/snapshot.h"

namespace trainyard::core {

// The records. The class is not thread-safe. The Edit functions return a record to change, and put
// it into the next delta.
class Ledger {
 public:
  explicit Ledger(Snapshot snapshot) : snapshot_(std::move(snapshot)) {}

  const Snapshot& snapshot() const { return snapshot_; }

  // Returns the job, which must exist.
  const JobRecord& job(JobId id) const { return snapshot_.jobs.at(id); }
  const AttemptRecord& attempt(AttemptId id) const { return snapshot_.attempts.at(id); }
  const WorkerRecord& worker(const std::string& name) const { return snapshot_.workers.at(name); }
  JobRecord& EditJob(JobId id);
  AttemptRecord& EditAttempt(AttemptId id);
  WorkerRecord& EditWorker(const std::string& name);
  CheckpointRecord& EditCheckpoint(const CheckpointRef& id);

  // The key must be new, except that of a worker, whose record is replaced.
  JobId AddJob(JobRecord job);  // gives the job its number
  // Gives the number of `last` to no new job, nor a lower one.
  void SkipJobs(JobId last) { snapshot_.next_job = std::max(snapshot_.next_job, last.value + 1); }
  // Deletes the job with its attempts. Its submission stays if it is needed, and otherwise must be
  // dropped.
  void DeleteJob(JobId id);
  // Keeps the submission known by `id`, which has lost its last job.
  void KeepSubmission(JobId id, const Submission& submission);
  void DropSubmission(JobId id);
  void AddAttempt(AttemptRecord attempt);
  void PutWorker(WorkerRecord worker);
  void DeleteWorker(const std::string& name);
  void AddRequest(RequestRecord request);
  void AddCheckpoint(CheckpointRecord checkpoint);
  void DeleteCheckpoint(const CheckpointRef& id);
  void PutQuota(QuotaRecord quota);
  void DeleteQuota(const std::string& subject);  // does nothing if there is none
  void PutReservation(ReservationRecord reservation);
  void DeleteReservation(const std::string& name);
  // Usage is a small table, so it goes into the delta as a whole.
  std::map<UsageKey, UsageRecord>& EditUsage();
  void AddPoolTime(int64_t us) {
    changes_.usage_changed = true;
    snapshot_.pool_time_us += us;
  }

  void AddEvent(int64_t time_us, std::string resource, std::string type, absl::string_view actor,
                std::string message);

  // Returns all changes since the last call. The snapshot's revision grows by one if there are any.
  Delta Take();

 private:
  // The keys of the records that have changed since the last delta, and the rows that were added.
  struct Changes {
    std::set<JobId> jobs;
    std::set<JobId> deleted_jobs;
    std::set<JobId> kept_submissions;
    std::set<JobId> deleted_submissions;
    std::set<AttemptId> attempts;
    std::set<std::string> workers;  // changed or deleted
    std::set<CheckpointRef> checkpoints;
    std::set<CheckpointRef> deleted_checkpoints;
    std::vector<EventRecord> events;
    std::vector<RequestRecord> requests;
    std::set<std::string> quotas;  // changed or deleted
    std::set<std::string> reservations;
    bool usage_changed = false;
  };

  Snapshot snapshot_;
  Changes changes_;
};

}  // namespace trainyard::core
