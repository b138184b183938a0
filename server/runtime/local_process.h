// Asks the kernel who is at the other end of a Unix socket.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/env.h"
#include "server/access/peer.h"

namespace trainyard::runtime {

// Remembers the names of users for a while, because the system may ask another host for them. The
// class is not thread-safe.
class LocalProcesses {
 public:
  explicit LocalProcesses(Clock& clock) : clock_(clock) {}

  // Returns the process that connected the socket. Groups are those that it had then.
  absl::StatusOr<access::LocalProcess> AtOtherEnd(int fd);

 private:
  struct Name {
    std::string text;
    absl::Duration looked_up;
  };

  Clock& clock_;
  std::map<uint32_t, Name> names_;
};

}  // namespace trainyard::runtime
