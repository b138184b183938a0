// Asks the kernel who is at the other end of a Unix socket, and the system what users and groups
// are called.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/env.h"
#include "server/access/peer.h"

namespace trainyard::runtime {

// Returns the name of the user, such as "anna", or its number if the system has none.
std::string UserName(uint32_t uid);
// Returns the number of the group, or NOT_FOUND.
absl::StatusOr<uint32_t> FindGroup(const std::string& name);

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
