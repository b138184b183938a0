// The devices of this host: GPUs where the driver shows some, and shares of the CPU.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/agent/nvml.h"
#include "worker/agent/report.h"

namespace trainyard::agent {

struct CpuDeviceOptions {
  int count = 0;               // 0: as many as the processors allow
  int threads_per_device = 0;  // 0: processors / count; 1 where neither is given
  bool share = false;          // more devices than processors are fine; none is bound to any
};

// Disjoint shares of `cpus` in their order, named cpu-0, cpu-1, ...; memory is divided equally.
// Without options there is one device a processor. INVALID_ARGUMENT where the devices need more
// processors than there are.
absl::StatusOr<std::vector<Device>> DivideCpus(const std::vector<int64_t>& cpus,
                                               int64_t memory_bytes,
                                               const CpuDeviceOptions& options);

// Processors on which this process may run, ascending.
std::vector<int64_t> AllowedCpus();

// `gpus` as devices, with the type that a spec asks for.
std::vector<Device> GpuDevices(const std::vector<Gpu>& gpus);

// Marks the devices on which a process computes that `is_ours` does not know.
// `processes`: by device name. `describe`: a process in words, for the reason.
std::vector<Device> MarkUnmanagedUse(std::vector<Device> devices,
                                     const std::map<std::string, std::vector<int64_t>>& processes,
                                     const std::function<bool(int64_t pid)>& is_ours,
                                     const std::function<std::string(int64_t pid)>& describe);

// "process 4711 (python3 of anna)"; without what cannot be seen from here.
std::string DescribeProcess(int64_t pid);

}  // namespace trainyard::agent
