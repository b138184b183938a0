// Chooses the name under which a host joins a pool if the user gives none.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace trainyard {

// Returns true for [a-z0-9-]{1,63}.
bool IsWorkerName(absl::string_view name);

// Returns the name of this host, or an empty text if it has none.
std::string Hostname();

// Turns `hostname` into a worker's name, [a-z0-9-]{1,63}: letters become lower case, and anything
// else becomes a dash. The domain is kept, so that hosts of the same name in two domains are two
// workers. Returns "worker" for an empty name.
std::string WorkerNameOf(absl::string_view hostname);

}  // namespace trainyard
