// Shares one backend among all who ask for it.
#pragma once

#include "worker/engine/make_backend.h"

namespace trainyard::engine {

// Returns a factory that calls `make` when it is first asked, and gives all callers the backend
// that this makes. If `make` fails, the next caller tries again. The factory is thread-safe. On a
// GPU, the executables of one backend share its plans, so only one thread at a time may use them.
BackendFactory ShareBackend(BackendFactory make);

}  // namespace trainyard::engine
