// Keeps pending stops by attempt, and claims by device.
#include "server/core/yard/stops.h"

#include <algorithm>
#include <utility>

namespace trainyard::core {

void Stops::Ask(AttemptId attempt, PendingStop stop) {
  pending_.insert_or_assign(attempt, std::move(stop));
}

bool Stops::Replace(AttemptId attempt, PendingStop stop) {
  PendingStop& pending = pending_.at(attempt);
  if (pending.claimant == JobId{}) return false;
  stop.deadline_us = std::min(stop.deadline_us, pending.deadline_us);
  stop.asked_at_step = pending.asked_at_step;
  pending = std::move(stop);
  return true;
}

const PendingStop* Stops::Find(AttemptId attempt) const {
  const auto found = pending_.find(attempt);
  return found == pending_.end() ? nullptr : &found->second;
}

void Stops::NoteStepBeforeRequest(AttemptId attempt, int64_t step) {
  const auto found = pending_.find(attempt);
  if (found == pending_.end() || found->second.asked_at_step.has_value()) return;
  found->second.asked_at_step = step;
}

bool Stops::IsAnsweredBy(AttemptId attempt, int64_t step) const {
  const PendingStop* stop = Find(attempt);
  return stop != nullptr && step >= stop->asked_at_step.value_or(0);
}

std::vector<AttemptId> Stops::StopsFor(JobId claimant) const {
  std::vector<AttemptId> attempts;
  for (const auto& [attempt, stop] : pending_) {
    if (stop.claimant == claimant) attempts.push_back(attempt);
  }
  return attempts;
}

void Stops::Claim(JobId job, const std::vector<DeviceKey>& devices) {
  for (const DeviceKey& device : devices) claims_[device] = job;
}

std::set<std::string> Stops::DropClaims(JobId job) {
  has_room_made_.erase(job);
  std::set<std::string> workers;
  for (auto it = claims_.begin(); it != claims_.end();) {
    if (it->second != job) {
      ++it;
      continue;
    }
    workers.insert(it->first.first);
    it = claims_.erase(it);
  }
  return workers;
}

JobId Stops::ClaimOf(const DeviceKey& device) const {
  const auto found = claims_.find(device);
  return found == claims_.end() ? JobId{} : found->second;
}

std::set<JobId> Stops::IdleClaimants(const std::vector<DeviceKey>& coming) const {
  std::set<JobId> claimants;
  for (const auto& [device, job] : claims_) claimants.insert(job);
  for (const auto& [attempt, stop] : pending_) {
    claimants.erase(stop.claimant);
    claimants.erase(attempt.job);
  }
  for (const DeviceKey& device : coming) claimants.erase(ClaimOf(device));
  return claimants;
}

}  // namespace trainyard::core
