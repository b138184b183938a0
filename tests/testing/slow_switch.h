// A switch that keeps every frame for a while: the delay of a long line, for kernels that have no
// netem. It takes whole frames from its ports, as a bridge does, so that TCP sees a real round-trip
// time.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/files.h"

namespace trainyard::testing {

// Owns one thread.
class SlowSwitch {
 public:
  // `ports` are interfaces of the namespace. What comes in at one goes out at all others.
  static absl::StatusOr<std::unique_ptr<SlowSwitch>> Start(int network_namespace,
                                                           const std::vector<std::string>& ports,
                                                           absl::Duration delay);
  ~SlowSwitch();
  SlowSwitch(const SlowSwitch&) = delete;
  SlowSwitch& operator=(const SlowSwitch&) = delete;

 private:
  struct Frame {
    absl::Duration due;  // Clock::Uptime
    size_t from;
    std::vector<char> bytes;
  };

  explicit SlowSwitch(absl::Duration delay) : delay_(delay) {}

  void Loop();
  void Receive(size_t port);
  void SendDue();

  const absl::Duration delay_;
  UniqueFd stop_;  // eventfd
  std::vector<UniqueFd> sockets_;
  std::deque<Frame> frames_;  // by due, since all wait for the same time
  std::thread thread_;
};

}  // namespace trainyard::testing
