// Derives the orders of a worker from the attempts that the server counts on and those that the
// worker has reported.
#include "server/core/yard/orders.h"

#include <utility>

namespace trainyard::core {

namespace {

// Makes the order for a part that is neither drained nor lost.
DesiredAttempt DesiredPart(const YardState& state, const AttemptRecord& attempt,
                           const std::string& worker) {
  const Config& config = state.config;
  const LiveAttempt& live = state.live.at(attempt.id);
  DesiredAttempt desired;
  desired.attempt = attempt.id;
  desired.fencing_token = attempt.fencing_token;
  if (FindPart(attempt, worker)->state == PartState::kExited) {
    desired.action = DesiredAction::kRemove;
    return desired;
  }
  const auto* stopping = std::get_if<attempt_fsm::Stopping>(&attempt.state);
  if (stopping != nullptr) {
    desired.action = DesiredAction::kStop;
    desired.stop_reason = stopping->reason;
    // A checkpoint is worth waiting for, unless no job will continue from it.
    const bool brief =
        stopping->reason == StopReason::kCancel || stopping->reason == StopReason::kNone;
    desired.stop_grace_us = brief ? config.cancel_grace_us : config.checkpoint_grace_us;
    return desired;
  }
  desired.action = DesiredAction::kRun;
  desired.world_size = static_cast<int32_t>(attempt.ranks.size());
  for (const RankPlacement& rank : attempt.ranks) {
    if (rank.worker == worker) desired.ranks.push_back(rank);
  }
  desired.resume_from = attempt.resume_from;
  desired.checkpoint_request = live.checkpoint_request;
  const JobRecord& job = state.ledger.job(attempt.id.job);
  if (!attempt.resume_from.has_value()) desired.init_from = job.submission->init_checkpoint;
  desired.failures = job.failures;
  desired.run_time_us = job.run_time_us;
  desired.spans_workers = attempt.parts.size() > 1;
  // Those of the worker itself go back to it, so that it knows that they have arrived.
  for (const auto& [from, keys] : live.rendezvous) {
    desired.rendezvous.insert(keys.begin(), keys.end());
  }
  return desired;
}

}  // namespace

std::vector<DesiredAttempt> DesiredFor(const YardState& state, const std::string& worker) {
  std::map<AttemptId, DesiredAttempt> desired;
  for (const AttemptId& id : state.live.On(worker)) {
    const AttemptRecord& attempt = state.ledger.attempt(id);
    const PartState part = FindPart(attempt, worker)->state;
    if (part == PartState::kDrained || part == PartState::kLost) continue;
    desired[id] = DesiredPart(state, attempt, worker);
  }
  // The worker is to stop and remove whatever it should not have: attempts that were superseded or
  // lost, that have ended, or that the server does not know.
  if (const Contact* contact = state.contacts.Find(worker); contact != nullptr) {
    for (const auto& [id, observed] : contact->observed) {
      const auto wanted = desired.find(id);
      if (wanted != desired.end() && wanted->second.fencing_token == observed.fencing_token) {
        continue;
      }
      DesiredAttempt& stale = desired[id] = DesiredAttempt{};
      stale.attempt = id;
      stale.fencing_token = observed.fencing_token;
      stale.action =
          observed.state == ObservedState::kExited ? DesiredAction::kRemove : DesiredAction::kStop;
      if (stale.action == DesiredAction::kStop) stale.stop_grace_us = state.config.cancel_grace_us;
    }
  }
  std::vector<DesiredAttempt> result;
  result.reserve(desired.size());
  for (auto& [id, attempt] : desired) result.push_back(std::move(attempt));
  return result;
}

std::map<AttemptId, std::vector<RankPlacement>> RanksOn(const YardState& state,
                                                        const std::string& worker) {
  std::map<AttemptId, std::vector<RankPlacement>> holders;
  const auto hold = [&](const AttemptRecord& attempt) {
    std::vector<RankPlacement>& ranks = holders[attempt.id];
    ranks.clear();
    for (const RankPlacement& rank : attempt.ranks) {
      if (rank.worker == worker) ranks.push_back(rank);
    }
  };
  const auto& attempts = state.snapshot().attempts;
  if (const Contact* contact = state.contacts.Find(worker); contact != nullptr) {
    for (const auto& [id, observed] : contact->observed) {
      const auto found = attempts.find(id);
      if (observed.state != ObservedState::kExited && found != attempts.end() &&
          found->second.fencing_token == observed.fencing_token) {
        hold(found->second);
      }
    }
  }
  for (const AttemptId& id : state.live.On(worker)) {
    const AttemptRecord& attempt = state.ledger.attempt(id);
    if (HoldsDevices(FindPart(attempt, worker)->state)) hold(attempt);
  }
  return holders;
}

std::map<std::string, AttemptId> HoldersOn(const YardState& state, const std::string& worker) {
  std::map<std::string, AttemptId> holders;
  for (const auto& [attempt, ranks] : RanksOn(state, worker)) {
    for (const RankPlacement& rank : ranks) {
      if (!rank.device.empty()) holders[rank.device] = attempt;
    }
  }
  return holders;
}

bool RunsUnknown(const Snapshot& snapshot, const std::string& worker, const Contact& contact) {
  for (const auto& [id, observed] : contact.observed) {
    if (observed.state == ObservedState::kExited) continue;
    const auto found = snapshot.attempts.find(id);
    // After a restore, a number may name an attempt that was placed elsewhere.
    if (found == snapshot.attempts.end() || found->second.fencing_token != observed.fencing_token ||
        FindPart(found->second, worker) == nullptr) {
      return true;
    }
  }
  return false;
}

}  // namespace trainyard::core
