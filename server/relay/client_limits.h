// Counts connections by the client that they come from, so that one client cannot take what is
// there for all.
#pragma once

#include <cstddef>
#include <string>

#include "absl/container/flat_hash_map.h"

namespace trainyard::relay {

// Limits of a relay. They bound memory: a connection takes some 50 KiB while it is idle, and up to
// 300 KiB while both ends are slow. A call takes some 11 KiB in gRPC.
struct Limits {
  // Handshakes that have begun and not ended. A further one takes the place of the oldest.
  size_t handshakes = 512;
  size_t handshakes_of_client = 64;
  // Steps of handshakes in one turn. For TLS, each may take a few tenths of a millisecond of
  // arithmetic, and connections that are open wait meanwhile.
  size_t handshake_steps_of_turn = 16;
  // Connections that are open. A further one is closed at once.
  size_t connections = 4096;
  size_t connections_of_client = 512;
  // Calls of one client that are under way in all its connections.
  size_t calls_of_client = 4000;
};

// The class is not thread-safe. It holds as many clients as have connections.
class ClientLimits {
 public:
  struct Counts {
    size_t handshakes = 0;
    size_t connections = 0;
  };

  Counts Of(const std::string& client) const;
  const Counts& total() const { return total_; }

  void BeginHandshake(const std::string& client);
  void EndHandshake(const std::string& client);
  void Open(const std::string& client);
  void Close(const std::string& client);

 private:
  void Forget(const std::string& client);

  absl::flat_hash_map<std::string, Counts> counts_;
  Counts total_;
};

}  // namespace trainyard::relay
