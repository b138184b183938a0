// Carries a worker's line to its server over the networks of a test, as the tunnel does through
// which a worker on another machine reaches its server: a Unix socket at the near end, TCP in
// between, and the server's socket at the far end. What the networks lose, TCP repeats; a line that
// is cut stays open and says nothing.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/files.h"
#include "tests/testing/networks.h"

namespace trainyard::testing {

// Owns one thread. It borrows nothing.
class Tunnel {
 public:
  // The near end is the socket `near_path`, on the host `near`. The far end is on the host `far`
  // and leads to the socket `server_path`.
  static absl::StatusOr<std::unique_ptr<Tunnel>> Start(const Networks& networks, int near,
                                                       std::string near_path, int far,
                                                       std::string server_path);
  ~Tunnel();
  Tunnel(const Tunnel&) = delete;
  Tunnel& operator=(const Tunnel&) = delete;

 private:
  // One direction of a connection: what was read from one end and not yet written to the other.
  struct Half {
    int from;
    int to;
    std::string waiting;
  };
  struct Connection {
    UniqueFd ends[2];
    Half halves[2];
    bool is_broken = false;
  };

  Tunnel() = default;

  void Loop();
  void Accept(const UniqueFd& listener, bool is_near);
  static void Carry(Half& half, short from_events, short to_events, bool& is_broken);

  std::string server_path_;
  std::string far_address_;
  int far_port_ = 0;
  UniqueFd stop_;  // eventfd
  UniqueFd near_listener_;
  UniqueFd far_listener_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::thread thread_;
};

}  // namespace trainyard::testing
