// What workers should have, as a function of the state; and who holds which device.
#include <utility>

#include "common/base/planted_bug.h"
#include "server/core/yard/yard_impl.h"

namespace trainyard::core {

std::vector<DesiredAttempt> Yard::Impl::DesiredFor(const std::string& worker) const {
  std::map<AttemptId, DesiredAttempt> desired;
  static const std::set<AttemptId> kNone;
  const auto on = live_on_.find(worker);
  for (const AttemptId& id : on == live_on_.end() ? kNone : on->second) {
    const AttemptRecord& attempt = ledger_.attempt(id);
    const PartState state = FindPart(attempt, worker)->state;
    if (state == PartState::kDrained || state == PartState::kLost) continue;
    if (TY_BUG(start_part_of_a_gang) && attempt.parts.back().worker == worker &&
        attempt.parts.size() > 1) {
      continue;
    }
    desired[id] = DesiredPart(attempt, live_.at(id), worker);
  }
  // What the worker has and should not: superseded, lost, ended, or never heard of.
  const auto contact = contacts_.find(worker);
  if (contact != contacts_.end()) {
    for (const auto& [id, observed] : contact->second.observed) {
      const auto wanted = desired.find(id);
      if (wanted != desired.end() && wanted->second.fencing_token == observed.fencing_token) {
        continue;
      }
      DesiredAttempt& stale = desired[id] = DesiredAttempt{};
      stale.attempt = id;
      stale.fencing_token = observed.fencing_token;
      stale.action =
          observed.state == ObservedState::kExited ? DesiredAction::kRemove : DesiredAction::kStop;
      if (stale.action == DesiredAction::kStop) stale.stop_grace_us = config_.cancel_grace_us;
    }
  }
  std::vector<DesiredAttempt> result;
  for (auto& [id, attempt] : desired) result.push_back(std::move(attempt));
  return result;
}

// For a part that is neither drained nor lost.
DesiredAttempt Yard::Impl::DesiredPart(const AttemptRecord& attempt, const LiveAttempt& live,
                                       const std::string& worker) const {
  DesiredAttempt desired;
  desired.attempt = attempt.id;
  desired.fencing_token = attempt.fencing_token;
  if (FindPart(attempt, worker)->state == PartState::kExited) {
    desired.action = DesiredAction::kRemove;
    return desired;
  }
  const auto* stopping = std::get_if<attempt_fsm::Stopping>(&attempt.state);
  if (stopping != nullptr && !TY_BUG(forget_to_stop)) {
    desired.action = DesiredAction::kStop;
    desired.stop_reason = stopping->reason;
    // A checkpoint is worth waiting for, unless nobody will go on from it.
    const bool brief =
        stopping->reason == StopReason::kCancel || stopping->reason == StopReason::kNone;
    desired.stop_grace_us = brief ? config_.cancel_grace_us : config_.checkpoint_grace_us;
    return desired;
  }
  desired.action = DesiredAction::kRun;
  desired.world_size = static_cast<int32_t>(attempt.ranks.size());
  for (const RankPlacement& rank : attempt.ranks) {
    if (rank.worker == worker) desired.ranks.push_back(rank);
  }
  desired.resume_from = attempt.resume_from;
  desired.checkpoint_request = live.checkpoint_request;
  desired.spans_workers = attempt.parts.size() > 1;
  for (const auto& [other, keys] : live.rendezvous) {
    if (other != worker) desired.rendezvous.insert(keys.begin(), keys.end());
  }
  return desired;
}

int64_t Yard::Impl::DesiredRevision(const std::string& worker) const {
  const auto found = contacts_.find(worker);
  return found == contacts_.end() ? 0 : found->second.desired_revision;
}

// A device is held while the server counts on ranks there, and while the worker still sees some,
// whatever the server thinks of them.
std::map<std::string, AttemptId> Yard::Impl::HoldersOn(const std::string& worker) const {
  std::map<std::string, AttemptId> holders;
  const auto hold = [&](const AttemptRecord& attempt) {
    for (const RankPlacement& rank : attempt.ranks) {
      if (rank.worker == worker) holders[rank.device] = attempt.id;
    }
  };
  const auto contact = contacts_.find(worker);
  if (contact != contacts_.end()) {
    for (const auto& [id, observed] : contact->second.observed) {
      const auto found = snapshot().attempts.find(id);
      if (TY_BUG(free_at_stop_request)) break;
      if (observed.state != ObservedState::kExited && found != snapshot().attempts.end() &&
          found->second.fencing_token == observed.fencing_token) {
        hold(found->second);
      }
    }
  }
  const auto on = live_on_.find(worker);
  if (on != live_on_.end()) {
    for (const AttemptId& id : on->second) {
      const AttemptRecord& attempt = ledger_.attempt(id);
      if (HoldsDevices(FindPart(attempt, worker)->state)) hold(attempt);
    }
  }
  return holders;
}

// Whether it runs something of which nobody knows which devices it uses.
bool Yard::Impl::RunsUnknown(const Contact& contact) const {
  for (const auto& [id, observed] : contact.observed) {
    if (observed.state == ObservedState::kExited) continue;
    const auto found = snapshot().attempts.find(id);
    if (found == snapshot().attempts.end() ||
        found->second.fencing_token != observed.fencing_token) {
      return true;
    }
  }
  return false;
}

}  // namespace trainyard::core
