// Counts connections by the address that they come from, so that one address cannot take what is
// there for all.
#pragma once

#include <cstddef>
#include <string>

#include "absl/container/flat_hash_map.h"

namespace trainyard::tls {

// Limits of a port. They bound memory: a connection takes some 50 KiB while it is idle, and up to
// 300 KiB while both ends are slow.
struct PortLimits {
  // Handshakes that have begun and not ended. A further one takes the place of the oldest.
  size_t handshakes = 512;
  size_t handshakes_of_address = 64;
  // Connections that are open. A further one is closed at once.
  size_t connections = 4096;
  size_t connections_of_address = 512;
};

// The class is not thread-safe. It holds as many addresses as have connections.
class AddressLimits {
 public:
  struct Counts {
    size_t handshakes = 0;
    size_t connections = 0;
  };

  Counts Of(const std::string& address) const;
  const Counts& total() const { return total_; }

  void BeginHandshake(const std::string& address);
  void EndHandshake(const std::string& address);
  void Open(const std::string& address);
  void Close(const std::string& address);

 private:
  void Forget(const std::string& address);

  absl::flat_hash_map<std::string, Counts> counts_;
  Counts total_;
};

}  // namespace trainyard::tls
