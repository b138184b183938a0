// Keeps one session of each worker.
#include "server/rpc/worker_sessions.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"

namespace trainyard::rpc {
std::string PrincipalOf(const access::Caller& caller) {
  return caller.worker.empty() ? absl::StrCat("user:", caller.user)
                               : absl::StrCat("worker:", caller.worker);
}

absl::Status WorkerSessions::CheckCount(const access::Caller& caller,
                                        const std::string& worker) const {
  if (caller.is_host) return absl::OkStatus();
  const std::string principal = PrincipalOf(caller);
  const absl::MutexLock lock(&mutex_);
  size_t others = 0;
  for (const auto& [key, session] : sessions_) {
    if (session.principal == principal && session.worker != worker) ++others;
  }
  if (others < kOfUserMax) return absl::OkStatus();
  return MakeError(absl::StatusCode::kResourceExhausted, "TOO_MANY_WORKERS",
                   absl::StrCat("'", caller.user, "' has ", others,
                                " workers already; more may be run by root, or by the user of the "
                                "server"));
}

void WorkerSessions::Begin(const access::Caller& caller, const std::string& worker,
                           const std::string& session) {
  if (caller.is_host) return;
  const absl::MutexLock lock(&mutex_);
  std::erase_if(sessions_, [&](const auto& entry) { return entry.second.worker == worker; });
  sessions_[session] = {worker, PrincipalOf(caller), {}};
}

absl::Status WorkerSessions::Check(const access::Caller& caller, const std::string& session) const {
  if (caller.is_host) return absl::OkStatus();
  const absl::MutexLock lock(&mutex_);
  const auto found = sessions_.find(session);
  if (found != sessions_.end() && found->second.principal == PrincipalOf(caller)) {
    return absl::OkStatus();
  }
  return error::UnknownSession(session);
}

void WorkerSessions::Grant(const std::string& session, const std::string& name) {
  const absl::MutexLock lock(&mutex_);
  const auto found = sessions_.find(session);
  if (found != sessions_.end()) found->second.granted.insert(name);
}

absl::Status WorkerSessions::CheckFetch(const access::Caller& caller,
                                        const std::string& name) const {
  if (caller.is_host) return absl::OkStatus();
  const std::string principal = PrincipalOf(caller);
  const absl::MutexLock lock(&mutex_);
  const bool was_told = std::any_of(sessions_.begin(), sessions_.end(), [&](const auto& entry) {
    return entry.second.principal == principal && entry.second.granted.contains(name);
  });
  return was_told ? absl::OkStatus() : error::CheckpointNotFound(name);
}

}  // namespace trainyard::rpc
