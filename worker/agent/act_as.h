// Lets a thread of a daemon that is root touch the files of a user as that user.
//
// A run directory belongs to the owner of its job, who may put anything there at any moment: a link
// to a file of root, a folder that was a file a moment ago, a hard link to another user's file. The
// daemon does not look for such traps, because there is always a moment between the look and the
// use. It gives up its own rights instead, so that the kernel refuses whatever the owner could not
// do either.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "worker/agent/file_owner.h"

namespace trainyard::agent {

// While it lives, the files that the calling thread opens, makes, renames and removes are judged
// and owned as if `owner` did it: with that user, its groups, and none of root's capabilities.
// Other threads are not affected. It does nothing if the owner is the user of this daemon.
//
// Objects are not nested. While one lives, the thread starts no other thread, which would inherit
// the state, and makes no call of gRPC, which may connect and read certificates. If the system
// refuses, the process ends: it must not go on with rights that it should not have.
class ActAs {
 public:
  explicit ActAs(const FileOwner& owner);
  ~ActAs();
  ActAs(const ActAs&) = delete;
  ActAs& operator=(const ActAs&) = delete;

 private:
  const bool is_self_;
};

// Returns OK if every user may pass through all folders of the absolute path to what is below, and
// none but root can put something else in their place.
absl::Status CheckPassage(const std::string& path);

// Returns OK if this process may act as other users and start processes of theirs.
absl::Status CheckCanActAs();

}  // namespace trainyard::agent
