// Takes over the sockets that the service manager of the host (systemd) has opened for a daemon. It
// is the protocol of sd_listen_fds(3), without systemd's library.
#pragma once

#include <vector>

namespace trainyard {

// Returns the listening sockets with which this process was started, closes them for programs that
// it starts, and removes the variables that tell of them. Only mains call this, once, before they
// start threads.
std::vector<int> TakePassedSockets();

}  // namespace trainyard
