// The name of this host, and the name that a worker has on it where nobody chose one. Both `up` and
// the worker itself name it by this rule, so that they mean the same worker.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace trainyard {

// As the system says it, with the domain where it has one; empty where it is unknown.
std::string HostName();

// The part of the host's name before the first dot as [a-z0-9-]{1,63}; "worker" where that is
// empty.
std::string WorkerNameOfHost(absl::string_view host_name);

}  // namespace trainyard
