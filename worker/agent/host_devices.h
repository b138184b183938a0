// Finds the devices that this host offers: its GPUs, and shares of its processors.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "worker/agent/host_resources.h"
#include "worker/agent/nvml.h"
#include "worker/agent/report.h"
#include "worker/agent/worker_flags.h"

namespace trainyard::agent {

// Finds the devices. `nvml` may be null, and the host then has no GPUs.
absl::StatusOr<std::vector<Device>> FindDevices(const WorkerFlags& flags, Nvml* nvml);

// Finds what jobs may use of the host, which has these devices.
absl::StatusOr<HostResources> FindHost(const WorkerFlags& flags,
                                       const std::vector<Device>& devices);

}  // namespace trainyard::agent
