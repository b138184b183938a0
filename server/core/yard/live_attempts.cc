// Keeps the attempts that have not ended, and finds them by worker.
#include "server/core/yard/live_attempts.h"

#include "common/base/check.h"

namespace trainyard::core {

LiveAttempt& LiveAttempts::Add(const AttemptRecord& attempt) {
  const auto [live, is_new] = attempts_.try_emplace(attempt.id);
  TY_CHECK(is_new);
  for (const AttemptPart& part : attempt.parts) by_worker_[part.worker].insert(attempt.id);
  return live->second;
}

void LiveAttempts::Remove(const AttemptRecord& attempt) {
  for (const AttemptPart& part : attempt.parts) {
    const auto on = by_worker_.find(part.worker);
    on->second.erase(attempt.id);
    if (on->second.empty()) by_worker_.erase(on);
  }
  attempts_.erase(attempt.id);
}

LiveAttempt* LiveAttempts::Find(AttemptId attempt) {
  const auto found = attempts_.find(attempt);
  return found == attempts_.end() ? nullptr : &found->second;
}

const LiveAttempt* LiveAttempts::Find(AttemptId attempt) const {
  const auto found = attempts_.find(attempt);
  return found == attempts_.end() ? nullptr : &found->second;
}

const std::set<AttemptId>& LiveAttempts::On(const std::string& worker) const {
  static const std::set<AttemptId> kNone;
  const auto found = by_worker_.find(worker);
  return found == by_worker_.end() ? kNone : found->second;
}

}  // namespace trainyard::core
