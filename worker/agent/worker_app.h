// The worker's program, built from its parts and run until it is told to end.
#pragma once

#include "absl/status/status.h"
#include "worker/agent/worker_flags.h"

namespace trainyard::agent {

// Returns when a signal ends the worker; its jobs go on.
absl::Status RunWorker(const WorkerFlags& flags);

}  // namespace trainyard::agent
