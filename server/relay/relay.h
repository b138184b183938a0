// Passes bytes between clients that are not trusted and gRPC, which gets one end of a pair of
// sockets for each connection. So the limits of clients are kept before gRPC sees them.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "common/base/env.h"
#include "common/base/files.h"
#include "common/base/mutex.h"
#include "server/relay/client_calls.h"
#include "server/relay/client_limits.h"
#include "server/relay/client_side.h"
#include "server/relay/connection.h"

namespace trainyard::relay {

// Owns the connections and one thread, which does all the work in turns: no client can hold up
// another for longer than its turn. It borrows the clock.
class Relay {
 public:
  // Takes the plain end of a connection whose handshake has succeeded, on the relay's thread.
  struct Opened {
    UniqueFd plain;
    access::Peer peer;
    std::shared_ptr<std::atomic<bool>> is_known;  // see Connection
    Protocol protocol = Protocol::kHttp2;
  };
  using Open = std::function<void(Opened opened)>;

  Relay(Clock& clock, Open open, const Limits& limits = {});
  // Sends for a second at most what gRPC has written, and closes all connections.
  ~Relay();

  // Takes a connection that was accepted. It may be called from any thread.
  void Take(std::unique_ptr<ClientSide> client);

  // Returns how many connections are open, and how many handshakes are under way.
  ClientLimits::Counts counts() const;

 private:
  using Id = uint64_t;
  void Run();
  // Waits until something can be done, and notes it.
  void Wait(int timeout_ms);
  int TimeoutMs() const;
  void TakeNew(absl::Duration now);
  void Begin(std::unique_ptr<ClientSide> client, absl::Duration now);
  // Makes room for one more handshake. The oldest goes, since a handshake that is meant takes a
  // moment only.
  void MakeRoom(const std::string& client);
  void Turn(absl::Duration now);
  void HandOver(Id id, Connection& connection);
  // Lets the relay forget a connection and hands its own socket over.
  void Release(Id id, UniqueFd socket);
  void Close(Id id);
  void CloseOverdue(absl::Duration now);
  // Asks for events of a descriptor. Returns false if the system has no memory for that.
  bool Watch(int fd, uint32_t events, uint64_t data);
  // Returns true if the client may have one more connection, and tells the log if it may not.
  bool HasRoom(const std::string& client) ABSL_LOCKS_EXCLUDED(mutex_);
  std::shared_ptr<ClientCalls> CallsOf(const std::string& client);

  Clock& clock_;
  const Open open_;
  const Limits limits_;
  const UniqueFd epoll_;
  const UniqueFd wake_;  // an eventfd

  // Only the thread uses these.
  Id next_id_ = 1;
  std::unordered_map<Id, std::unique_ptr<Connection>> connections_;
  std::set<Id> handshakes_;  // the oldest first
  std::set<Id> ready_;       // connections that may have something to do
  std::vector<char> scratch_;
  // Those of clients that have connections, or have had some until a moment ago.
  absl::flat_hash_map<std::string, std::shared_ptr<ClientCalls>> calls_;
  absl::Duration overdue_checked_ = -absl::InfiniteDuration();

  mutable Mutex mutex_;
  std::vector<std::unique_ptr<ClientSide>> accepted_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, size_t> accepted_of_ ABSL_GUARDED_BY(mutex_);  // by client
  bool stops_ ABSL_GUARDED_BY(mutex_) = false;
  ClientLimits counts_ ABSL_GUARDED_BY(mutex_);
  absl::Duration warned_ ABSL_GUARDED_BY(mutex_) = -absl::InfiniteDuration();
  std::thread thread_;
};

}  // namespace trainyard::relay
