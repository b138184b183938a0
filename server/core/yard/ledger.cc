// Notes which records a turn has changed, and makes the turn's delta from them.
#include "server/core/yard/ledger.h"

#include <utility>

#include "common/base/check.h"

namespace trainyard::core {

JobRecord& Ledger::EditJob(JobId id) {
  jobs_.insert(id);
  return snapshot_.jobs.at(id);
}

AttemptRecord& Ledger::EditAttempt(AttemptId id) {
  attempts_.insert(id);
  return snapshot_.attempts.at(id);
}

WorkerRecord& Ledger::EditWorker(const std::string& name) {
  workers_.insert(name);
  return snapshot_.workers.at(name);
}

JobId Ledger::AddJob(JobRecord job) {
  const JobId id{snapshot_.next_job++};
  job.id = id;
  TY_CHECK(snapshot_.jobs.emplace(id, std::move(job)).second);
  jobs_.insert(jobs_.end(), id);
  return id;
}

void Ledger::DeleteJob(JobId id) {
  TY_CHECK(snapshot_.jobs.erase(id) == 1);
  const auto is_of_job = [id](const AttemptId& attempt) { return attempt.job == id; };
  const auto first = snapshot_.attempts.lower_bound({id, 0});
  auto last = first;
  while (last != snapshot_.attempts.end() && is_of_job(last->first)) ++last;
  snapshot_.attempts.erase(first, last);
  std::erase_if(attempts_, is_of_job);
  jobs_.erase(id);
  deleted_jobs_.insert(id);
}

void Ledger::KeepSubmission(JobId id, const Submission& submission) {
  snapshot_.kept_submissions.insert_or_assign(id, submission);
  kept_submissions_.insert(id);
}

void Ledger::DropSubmission(JobId id) {
  snapshot_.kept_submissions.erase(id);
  kept_submissions_.erase(id);
  deleted_submissions_.insert(id);
}

void Ledger::AddAttempt(AttemptRecord attempt) {
  const AttemptId id = attempt.id;
  TY_CHECK(snapshot_.attempts.emplace(id, std::move(attempt)).second);
  attempts_.insert(id);
}

void Ledger::PutWorker(WorkerRecord worker) {
  workers_.insert(worker.name);
  std::string name = worker.name;
  snapshot_.workers.insert_or_assign(std::move(name), std::move(worker));
}

void Ledger::AddRequest(RequestRecord request) {
  requests_.push_back(request);
  std::string id = request.request_id;
  TY_CHECK(snapshot_.requests.emplace(std::move(id), std::move(request)).second);
}

void Ledger::AddCheckpoint(CheckpointRecord checkpoint) {
  const CheckpointRef id = checkpoint.id;
  TY_CHECK(snapshot_.checkpoints.emplace(id, std::move(checkpoint)).second);
  checkpoints_.insert(id);
  deleted_checkpoints_.erase(id);
}

void Ledger::DeleteCheckpoint(const CheckpointRef& id) {
  TY_CHECK(snapshot_.checkpoints.erase(id) == 1);
  checkpoints_.erase(id);
  deleted_checkpoints_.insert(id);
}

void Ledger::PutQuota(QuotaRecord quota) {
  quotas_.insert(quota.subject);
  std::string subject = quota.subject;
  snapshot_.quotas.insert_or_assign(std::move(subject), std::move(quota));
}

void Ledger::DeleteQuota(const std::string& subject) {
  if (snapshot_.quotas.erase(subject) > 0) quotas_.insert(subject);
}

void Ledger::PutReservation(ReservationRecord reservation) {
  reservations_.insert(reservation.name);
  std::string name = reservation.name;
  snapshot_.reservations.insert_or_assign(std::move(name), std::move(reservation));
}

void Ledger::DeleteReservation(const std::string& name) {
  TY_CHECK(snapshot_.reservations.erase(name) == 1);
  reservations_.insert(name);
}

std::map<UsageKey, UsageRecord>& Ledger::EditUsage() {
  usage_changed_ = true;
  return snapshot_.usage;
}

void Ledger::AddEvent(int64_t time_us, std::string resource, std::string type,
                      absl::string_view actor, std::string message) {
  events_.push_back({snapshot_.next_event++, time_us, std::move(resource), std::move(type),
                     std::string(actor), std::move(message)});
}

Delta Ledger::Take() {
  Delta delta;
  const int64_t revision = snapshot_.revision + 1;
  for (const JobId& id : jobs_) {
    JobRecord& job = snapshot_.jobs.at(id);
    job.revision = revision;
    delta.jobs.push_back(job);
  }
  delta.deleted_jobs.assign(deleted_jobs_.begin(), deleted_jobs_.end());
  delta.kept_submissions.assign(kept_submissions_.begin(), kept_submissions_.end());
  delta.deleted_submissions.assign(deleted_submissions_.begin(), deleted_submissions_.end());
  for (const AttemptId& id : attempts_) delta.attempts.push_back(snapshot_.attempts.at(id));
  for (const std::string& name : workers_) {
    WorkerRecord& worker = snapshot_.workers.at(name);
    worker.revision = revision;
    delta.workers.push_back(worker);
  }
  for (const CheckpointRef& id : checkpoints_) {
    delta.checkpoints.push_back(snapshot_.checkpoints.at(id));
  }
  delta.deleted_checkpoints.assign(deleted_checkpoints_.begin(), deleted_checkpoints_.end());
  delta.events = std::move(events_);
  delta.requests = std::move(requests_);
  for (const std::string& subject : quotas_) {
    const auto found = snapshot_.quotas.find(subject);
    if (found != snapshot_.quotas.end()) {
      delta.quotas.push_back(found->second);
    } else {
      delta.deleted_quotas.push_back(subject);
    }
  }
  for (const std::string& name : reservations_) {
    const auto found = snapshot_.reservations.find(name);
    if (found != snapshot_.reservations.end()) {
      delta.reservations.push_back(found->second);
    } else {
      delta.deleted_reservations.push_back(name);
    }
  }
  if (usage_changed_) {
    for (const auto& [key, usage] : snapshot_.usage) delta.usage.push_back(usage);
  }
  delta.usage_changed = std::exchange(usage_changed_, false);
  delta.pool_time_us = snapshot_.pool_time_us;
  quotas_.clear();
  reservations_.clear();
  jobs_.clear();
  deleted_jobs_.clear();
  kept_submissions_.clear();
  deleted_submissions_.clear();
  attempts_.clear();
  workers_.clear();
  checkpoints_.clear();
  deleted_checkpoints_.clear();
  events_.clear();
  requests_.clear();
  if (!delta.empty()) snapshot_.revision = revision;
  delta.revision = snapshot_.revision;
  delta.next_job = snapshot_.next_job;
  delta.next_event = snapshot_.next_event;
  return delta;
}

}  // namespace trainyard::core
