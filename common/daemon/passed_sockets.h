// Takes over the sockets that the service manager of the host (systemd) has opened for a daemon. It
// is the protocol of sd_listen_fds(3), without systemd's library.
#pragma once

#include <vector>

#include "common/daemon/service_manager.h"

namespace trainyard {

// Returns the listening sockets with which this process was started, and closes them for programs
// that it starts.
std::vector<int> PassedSockets(const ServiceVariables& variables);

}  // namespace trainyard
