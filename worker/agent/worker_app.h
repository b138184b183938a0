// Builds the worker's program from its parts and runs it until it is told to end.
#pragma once

#include "absl/status/status.h"
#include "worker/agent/worker_flags.h"

namespace trainyard::agent {

// Runs the worker. It returns when a signal ends it; its jobs continue.
absl::Status RunWorker(const WorkerFlags& flags);

}  // namespace trainyard::agent
