// Tells connections apart by descriptor, and descriptors by the number of their socket.
#include "server/runtime/connections.h"

#include <sys/socket.h>
#include <sys/stat.h>

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"

namespace trainyard::runtime {
namespace {

// Returns the number of the socket, or 0 if the descriptor is none.
ino_t SocketNumber(int fd) {
  struct stat info {};
  return fstat(fd, &info) == 0 && S_ISSOCK(info.st_mode) ? info.st_ino : 0;
}

}  // namespace

void Connections::Add(int fd, access::Peer peer, std::shared_ptr<std::atomic<bool>> is_known) {
  const absl::Duration now = clock_.Uptime();
  const MutexLock lock(&mutex_);
  connections_[fd] = {SocketNumber(fd), std::make_shared<const access::Peer>(std::move(peer)), now,
                      false, std::move(is_known)};
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
      it = connections_.erase(it);
      continue;
    }
    if (!connection.has_called && now - connection.added > kSilentMax) {
      (void)shutdown(it->first, SHUT_RDWR);
    }
    ++it;
  }
}

size_t Connections::size() const {
  const MutexLock lock(&mutex_);
  return connections_.size();
}

}  // namespace trainyard::runtime
