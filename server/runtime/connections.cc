// Tells connections apart by descriptor, and descriptors by the number of their socket.
#include "server/runtime/connections.h"

#include <sys/socket.h>
#include <sys/stat.h>

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"

namespace trainyard::runtime {
namespace {

// Whoever has too many connections is looked at as often as this, however fast new ones come.
constexpr absl::Duration kLookInterval = absl::Milliseconds(100);

// Returns the number of the socket, or 0 if the descriptor is none.
ino_t SocketNumber(int fd) {
  struct stat info {};
  return fstat(fd, &info) == 0 && S_ISSOCK(info.st_mode) ? info.st_ino : 0;
}

}  // namespace

bool Connections::Add(int fd, access::Peer peer, std::shared_ptr<std::atomic<bool>> is_known) {
  const absl::Duration now = clock_.Uptime();
  const MutexLock lock(&mutex_);
  if (const auto old = connections_.find(fd); old != connections_.end()) Forget(old);
  const auto is_full = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto count = count_of_user_.find(peer.user);
    return count != count_of_user_.end() && count->second >= kOfUserMax;
  };
  // Connections of other hosts are limited by address before they get here (server/tls).
  if (!peer.is_host && peer.address.empty() && is_full()) {
    absl::Duration& looked = looked_at_.emplace(peer.user, -absl::InfiniteDuration()).first->second;
    if (now - looked < kLookInterval) return false;
    looked = now;
    ForgetClosed(peer.user);
    if (is_full()) return false;
  }
  ++count_of_user_[peer.user];
  connections_[fd] = {SocketNumber(fd), std::make_shared<const access::Peer>(std::move(peer)), now,
                      false, std::move(is_known)};
  return true;
}

Connections::ByDescriptor::iterator Connections::ConnectionOf(absl::string_view grpc_peer) {
  int fd = -1;
  if (!absl::ConsumePrefix(&grpc_peer, "fd:") || !absl::SimpleAtoi(grpc_peer, &fd)) {
    return connections_.end();
  }
  return connections_.find(fd);
}

std::shared_ptr<const access::Peer> Connections::Find(absl::string_view grpc_peer) {
  const MutexLock lock(&mutex_);
  const auto found = ConnectionOf(grpc_peer);
  if (found == connections_.end()) return nullptr;
  const access::Peer& peer = *found->second.peer;
  // A stranger's calls would keep a place for ever that others need.
  if (!peer.user.empty() || !peer.worker.empty()) found->second.has_called = true;
  return found->second.peer;
}

void Connections::NoteSignIn(absl::string_view grpc_peer) {
  const MutexLock lock(&mutex_);
  const auto found = ConnectionOf(grpc_peer);
  if (found == connections_.end()) return;
  found->second.has_called = true;
  if (found->second.is_known != nullptr) *found->second.is_known = true;
}

void Connections::End(int fd, const Connection& connection) {
  if (SocketNumber(fd) == connection.number) (void)shutdown(fd, SHUT_RDWR);
}

void Connections::EndOfWorker(absl::string_view worker) {
  const MutexLock lock(&mutex_);
  for (const auto& [fd, connection] : connections_) {
    if (connection.peer->worker == worker) End(fd, connection);
  }
}

void Connections::EndAll() {
  const MutexLock lock(&mutex_);
  for (const auto& [fd, connection] : connections_) End(fd, connection);
}

void Connections::Sweep() {
  const absl::Duration now = clock_.Uptime();
  const MutexLock lock(&mutex_);
  for (auto it = connections_.begin(); it != connections_.end();) {
    const Connection& connection = it->second;
    if (SocketNumber(it->first) != connection.number) {
      it = Forget(it);
      continue;
    }
    if (!connection.has_called && now - connection.added > kSilentMax) {
      (void)shutdown(it->first, SHUT_RDWR);
    }
    ++it;
  }
  looked_at_.clear();
}

size_t Connections::size() const {
  const MutexLock lock(&mutex_);
  return connections_.size();
}

void Connections::ForgetClosed(const std::string& user) {
  for (auto it = connections_.begin(); it != connections_.end();) {
    const bool is_closed =
        it->second.peer->user == user && SocketNumber(it->first) != it->second.number;
    it = is_closed ? Forget(it) : std::next(it);
  }
}

Connections::ByDescriptor::iterator Connections::Forget(ByDescriptor::iterator connection) {
  const auto count = count_of_user_.find(connection->second.peer->user);
  if (--count->second == 0) count_of_user_.erase(count);
  return connections_.erase(connection);
}

}  // namespace trainyard::runtime
