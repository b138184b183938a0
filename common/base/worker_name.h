// The name under which a host joins a pool when nobody chose one.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace trainyard {

// The name of this host; empty where it has none.
std::string Hostname();

// `hostname` as a worker's name, [a-z0-9-]{1,63}: lower case, and a dash for anything else, so that
// hosts of one name in two domains are two workers. "worker" for an empty name.
std::string WorkerNameOf(absl::string_view hostname);

}  // namespace trainyard
