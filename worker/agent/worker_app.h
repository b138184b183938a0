// Builds the worker's program from its parts and runs it until it is told to end.
#pragma once

#include "absl/status/status.h"
#include "common/daemon/service_manager.h"
#include "worker/agent/worker_flags.h"

namespace trainyard::agent {

// Runs the worker, and tells the service manager how it is. It returns when a signal ends it; its
// jobs continue.
absl::Status RunWorker(const WorkerFlags& flags, const ServiceManager& manager);

}  // namespace trainyard::agent
