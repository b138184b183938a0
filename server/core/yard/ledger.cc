// Notes which records a turn has changed, and makes the turn's delta from them.
#include "server/core/yard/ledger.h"

#include <utility>

#include "common/base/check.h"

namespace trainyard::core {
namespace {

// Copies the records of these keys.
template <typename Key, typename Record>
void CopyRecords(const std::set<Key>& keys, const std::map<Key, Record>& records,
                 std::vector<Record>& rows) {
  for (const Key& key : keys) rows.push_back(records.at(key));
}

// Copies the records of these keys. Those that are not there any more were deleted.
template <typename Key, typename Record>
void CopyOrDelete(const std::set<Key>& keys, const std::map<Key, Record>& records,
                  std::vector<Record>& rows, std::vector<Key>& deleted) {
  for (const Key& key : keys) {
    const auto found = records.find(key);
    if (found != records.end()) {
      rows.push_back(found->second);
    } else {
      deleted.push_back(key);
    }
  }
}

}  // namespace

JobRecord& Ledger::EditJob(JobId id) {
  changes_.jobs.insert(id);
  return snapshot_.jobs.at(id);
}

AttemptRecord& Ledger::EditAttempt(AttemptId id) {
  changes_.attempts.insert(id);
  return snapshot_.attempts.at(id);
}

WorkerRecord& Ledger::EditWorker(const std::string& name) {
  changes_.workers.insert(name);
  return snapshot_.workers.at(name);
}

CheckpointRecord& Ledger::EditCheckpoint(const CheckpointRef& id) {
  changes_.checkpoints.insert(id);
  return snapshot_.checkpoints.at(id);
}

JobId Ledger::AddJob(JobRecord job) {
  const JobId id{snapshot_.next_job++};
  job.id = id;
  TY_CHECK(snapshot_.jobs.emplace(id, std::move(job)).second);
  changes_.jobs.insert(changes_.jobs.end(), id);
  return id;
}

void Ledger::DeleteJob(JobId id) {
  TY_CHECK(snapshot_.jobs.erase(id) == 1);
  const auto is_of_job = [id](const AttemptId& attempt) { return attempt.job == id; };
  const auto first = snapshot_.attempts.lower_bound({id, 0});
  auto last = first;
  while (last != snapshot_.attempts.end() && is_of_job(last->first)) ++last;
  snapshot_.attempts.erase(first, last);
  std::erase_if(changes_.attempts, is_of_job);
  changes_.jobs.erase(id);
  changes_.deleted_jobs.insert(id);
}

void Ledger::KeepSubmission(JobId id, const Submission& submission) {
  snapshot_.kept_submissions.insert_or_assign(id, submission);
  changes_.kept_submissions.insert(id);
}

void Ledger::DropSubmission(JobId id) {
  snapshot_.kept_submissions.erase(id);
  changes_.kept_submissions.erase(id);
  changes_.deleted_submissions.insert(id);
}

void Ledger::AddAttempt(AttemptRecord attempt) {
  const AttemptId id = attempt.id;
  TY_CHECK(snapshot_.attempts.emplace(id, std::move(attempt)).second);
  changes_.attempts.insert(id);
}

void Ledger::PutWorker(WorkerRecord worker) {
  changes_.workers.insert(worker.name);
  std::string name = worker.name;
  snapshot_.workers.insert_or_assign(std::move(name), std::move(worker));
}

void Ledger::DeleteWorker(const std::string& name) {
  TY_CHECK(snapshot_.workers.erase(name) == 1);
  changes_.workers.insert(name);
}

void Ledger::AddRequest(RequestRecord request) {
  changes_.requests.push_back(request);
  std::string id = request.request_id;
  TY_CHECK(snapshot_.requests.emplace(std::move(id), std::move(request)).second);
}

void Ledger::AddCheckpoint(CheckpointRecord checkpoint) {
  const CheckpointRef id = checkpoint.id;
  TY_CHECK(snapshot_.checkpoints.emplace(id, std::move(checkpoint)).second);
  changes_.checkpoints.insert(id);
  changes_.deleted_checkpoints.erase(id);
}

void Ledger::DeleteCheckpoint(const CheckpointRef& id) {
  TY_CHECK(snapshot_.checkpoints.erase(id) == 1);
  changes_.checkpoints.erase(id);
  changes_.deleted_checkpoints.insert(id);
}

void Ledger::PutQuota(QuotaRecord quota) {
  changes_.quotas.insert(quota.subject);
  std::string subject = quota.subject;
  snapshot_.quotas.insert_or_assign(std::move(subject), std::move(quota));
}

void Ledger::DeleteQuota(const std::string& subject) {
  if (snapshot_.quotas.erase(subject) > 0) changes_.quotas.insert(subject);
}

void Ledger::PutReservation(ReservationRecord reservation) {
  changes_.reservations.insert(reservation.name);
  std::string name = reservation.name;
  snapshot_.reservations.insert_or_assign(std::move(name), std::move(reservation));
}

void Ledger::DeleteReservation(const std::string& name) {
  TY_CHECK(snapshot_.reservations.erase(name) == 1);
  changes_.reservations.insert(name);
}

std::map<UsageKey, UsageRecord>& Ledger::EditUsage() {
  changes_.usage_changed = true;
  return snapshot_.usage;
}

void Ledger::AddEvent(int64_t time_us, std::string resource, std::string type,
                      absl::string_view actor, std::string message) {
  changes_.events.push_back({snapshot_.next_event++, time_us, std::move(resource), std::move(type),
                             std::string(actor), std::move(message)});
}

Delta Ledger::Take() {
  Changes changes = std::exchange(changes_, {});
  const int64_t revision = snapshot_.revision + 1;
  for (const JobId& id : changes.jobs) snapshot_.jobs.at(id).revision = revision;
  for (const std::string& name : changes.workers) {
    const auto worker = snapshot_.workers.find(name);
    if (worker != snapshot_.workers.end()) worker->second.revision = revision;
  }
  Delta delta;
  CopyRecords(changes.jobs, snapshot_.jobs, delta.jobs);
  delta.deleted_jobs.assign(changes.deleted_jobs.begin(), changes.deleted_jobs.end());
  delta.kept_submissions.assign(changes.kept_submissions.begin(), changes.kept_submissions.end());
  delta.deleted_submissions.assign(changes.deleted_submissions.begin(),
                                   changes.deleted_submissions.end());
  CopyRecords(changes.attempts, snapshot_.attempts, delta.attempts);
  CopyOrDelete(changes.workers, snapshot_.workers, delta.workers, delta.deleted_workers);
  CopyRecords(changes.checkpoints, snapshot_.checkpoints, delta.checkpoints);
  delta.deleted_checkpoints.assign(changes.deleted_checkpoints.begin(),
                                   changes.deleted_checkpoints.end());
  delta.events = std::move(changes.events);
  delta.requests = std::move(changes.requests);
  CopyOrDelete(changes.quotas, snapshot_.quotas, delta.quotas, delta.deleted_quotas);
  CopyOrDelete(changes.reservations, snapshot_.reservations, delta.reservations,
               delta.deleted_reservations);
  delta.usage_changed = changes.usage_changed;
  if (changes.usage_changed) {
    for (const auto& [key, usage] : snapshot_.usage) delta.usage.push_back(usage);
  }
  delta.pool_time_us = snapshot_.pool_time_us;
  if (!delta.empty()) snapshot_.revision = revision;
  delta.revision = snapshot_.revision;
  delta.next_job = snapshot_.next_job;
  delta.next_event = snapshot_.next_event;
  return delta;
}

}  // namespace trainyard::core
