// Remembers who is at the other end of each connection, so that every call is known to be a user's
// or a worker's.
//
// gRPC names the connection of a call by its descriptor ("fd:17"). It closes the descriptor only
// when the last call of the connection has been destroyed, so while a handler runs, its number
// cannot have become another connection.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include <sys/types.h>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/env.h"
#include "common/base/mutex.h"
#include "server/access/peer.h"

namespace trainyard::runtime {

// The connections. The class is thread-safe. It does not own the descriptors.
class Connections {
 public:
  // A connection on which no call has come for so long after it was made is ended. If the transport
  // does not say who is at its other end, only calls with a valid token count.
  static constexpr absl::Duration kSilentMax = absl::Minutes(1);

  explicit Connections(Clock& clock) : clock_(clock) {}

  // Remembers a connection that is about to be handed on. `is_known`, which may be null, becomes
  // true with the first call that has a valid token.
  void Add(int fd, access::Peer peer, std::shared_ptr<std::atomic<bool>> is_known = nullptr);
  // Returns who is behind a call, by ServerContext::peer(), or null if that is no connection of
  // this table.
  std::shared_ptr<const access::Peer> Find(absl::string_view grpc_peer);

  // Notes that a call with a valid token came on the connection.
  void NoteSignIn(absl::string_view grpc_peer);

  // Ends the connections of workers with a certificate for this name.
  void EndOfWorker(absl::string_view worker);
  // Ends all connections. They are closed by those who have them.
  void EndAll();
  // Forgets connections that were closed, and ends those that have been silent for too long.
  void Sweep();
  size_t size() const;

 private:
  struct Connection {
    ino_t number = 0;  // of the socket; another one means that the descriptor was closed
    std::shared_ptr<const access::Peer> peer;
    absl::Duration added;
    bool has_called = false;
    std::shared_ptr<std::atomic<bool>> is_known;
  };
  using ByDescriptor = std::map<int, Connection>;

  static void End(int fd, const Connection& connection);

  // Returns the connection of a call, or end().
  ByDescriptor::iterator ConnectionOf(absl::string_view grpc_peer)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Clock& clock_;
  mutable Mutex mutex_;
  ByDescriptor connections_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace trainyard::runtime
