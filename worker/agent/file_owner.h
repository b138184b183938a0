// Defines who owns a run directory.
#pragma once

#include <sys/types.h>

#include <vector>

namespace trainyard::agent {

// A user as the kernel knows one. By default it is the user of this daemon.
struct FileOwner {
  bool is_self = true;  // the user of this daemon; the other members then say nothing
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups = {};  // all of them, `gid` included

  friend bool operator==(const FileOwner&, const FileOwner&) = default;
};

}  // namespace trainyard::agent
