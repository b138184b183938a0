// Keeps one table of at most a thousand tunnels, which is searched from end to end.
#include "server/rpc/tunnels.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/tunnel_errors.h"

namespace trainyard::rpc {
namespace {

absl::Status TooMany(size_t count, absl::string_view of) {
  return MakeError(absl::StatusCode::kResourceExhausted, error::kTooManyTunnels,
                   absl::StrCat(count, " tunnels ", of, " are open; close some of them"));
}

}  // namespace

absl::Status Tunnels::Add(const std::string& id, Tunnel tunnel,
                          std::shared_ptr<TunnelStream> user) {
  const absl::MutexLock lock(&mutex_);
  size_t of_user = 0;
  size_t of_worker = 0;
  for (const auto& [other, entry] : tunnels_) {
    if (entry.tunnel.user == tunnel.user) ++of_user;
    if (entry.tunnel.worker == tunnel.worker) ++of_worker;
  }
  if (of_user >= kTunnelsOfUserMax) return TooMany(of_user, absl::StrCat("of ", tunnel.user));
  if (of_worker >= kTunnelsOfWorkerMax) {
    return TooMany(of_worker, absl::StrCat("to worker '", tunnel.worker, "'"));
  }
  if (tunnels_.size() >= kTunnelsMax) return TooMany(tunnels_.size(), "of all users");
  tunnels_[id] = {std::move(tunnel), std::move(user)};
  return absl::OkStatus();
}

std::map<std::string, Tunnel> Tunnels::WaitingFor(const std::string& worker) const {
  const absl::MutexLock lock(&mutex_);
  std::map<std::string, Tunnel> waiting;
  for (const auto& [id, entry] : tunnels_) {
    if (entry.user != nullptr && entry.tunnel.worker == worker) waiting[id] = entry.tunnel;
  }
  return waiting;
}

absl::StatusOr<ClaimedTunnel> Tunnels::Claim(const std::string& worker,
                                             const v1::TunnelClaim& claim) {
  const absl::MutexLock lock(&mutex_);
  const auto found = tunnels_.find(claim.tunnel());
  const auto is_meant = [&](const Entry& entry) {
    return entry.user != nullptr && entry.tunnel.worker == worker &&
           AttemptName(entry.tunnel.attempt) == claim.attempt() &&
           entry.tunnel.fencing_token == claim.fencing_token() && entry.tunnel.rank == claim.rank();
  };
  if (found == tunnels_.end() || !is_meant(found->second)) {
    return MakeError(absl::StatusCode::kNotFound, error::kTunnelNotFound,
                     absl::StrCat("no such tunnel waits for worker '", worker, "'"));
  }
  return ClaimedTunnel{found->second.tunnel, std::exchange(found->second.user, nullptr)};
}

void Tunnels::Remove(const std::string& id) {
  std::shared_ptr<TunnelStream> user;  // is destroyed after the lock is released
  const absl::MutexLock lock(&mutex_);
  const auto found = tunnels_.find(id);
  if (found == tunnels_.end()) return;
  user = std::move(found->second.user);
  tunnels_.erase(found);
}

bool Tunnels::GiveUp(const std::string& id) {
  std::shared_ptr<TunnelStream> user;  // is destroyed after the lock is released
  const absl::MutexLock lock(&mutex_);
  const auto found = tunnels_.find(id);
  if (found == tunnels_.end() || found->second.user == nullptr) return false;
  user = std::move(found->second.user);
  tunnels_.erase(found);
  return true;
}

absl::Status Tunnels::BeginUnclaimed(const std::string& client) {
  const absl::MutexLock lock(&mutex_);
  const auto found = unclaimed_.find(client);
  const size_t of_client = found == unclaimed_.end() ? 0 : found->second;
  if (of_client >= kUnclaimedStreamsOfClientMax || all_unclaimed_ >= kUnclaimedStreamsMax) {
    return TooMany(all_unclaimed_, "that nobody has claimed");
  }
  ++unclaimed_[client];
  ++all_unclaimed_;
  return absl::OkStatus();
}

void Tunnels::EndUnclaimed(const std::string& client) {
  const absl::MutexLock lock(&mutex_);
  const auto found = unclaimed_.find(client);
  if (--found->second == 0) unclaimed_.erase(found);
  --all_unclaimed_;
}

bool Tunnels::IsForwardNew(const std::string& about, absl::Duration uptime) {
  const absl::MutexLock lock(&mutex_);
  const auto noted = forwards_.find(about);
  if (noted != forwards_.end() && uptime - noted->second < kForwardAuditInterval) return false;
  if (forwards_.size() >= kForwardsRememberedMax) forwards_.clear();
  forwards_[about] = uptime;
  return true;
}

size_t Tunnels::size() const {
  const absl::MutexLock lock(&mutex_);
  return tunnels_.size();
}

}  // namespace trainyard::rpc
