// Knows what the system says of users who are not there as processes: those who sign in with
// tokens.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "server/access/peer.h"

namespace trainyard::runtime {

// Asks the system for users and their groups, which may take long, and remembers the answers. The
// class is thread-safe.
class SystemUsers {
 public:
  explicit SystemUsers(access::RoleMap roles) : roles_(roles) {}

  // Asks the system for these users. It may block.
  void Learn(const std::vector<std::string>& users);
  // Returns what is known of a user at once. A user who was not learned, or whom the system does
  // not know, has the default role.
  access::Peer Find(const std::string& user) const;

 private:
  const access::RoleMap roles_;
  mutable Mutex mutex_;
  std::map<std::string, access::Peer> peers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace trainyard::runtime
