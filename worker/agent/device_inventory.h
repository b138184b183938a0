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
#include "worker/agent/gpu_facts.h"
#include "worker/agent/nvml.h"
#include "worker/agent/report.h"

namespace trainyard::agent {

// One CPU device.
struct CpuDeviceShape {
  int threads = 1;
  std::vector<int64_t> cpus = {};  // the processors that it is bound to; empty: given to it

  friend bool operator==(const CpuDeviceShape&, const CpuDeviceShape&) = default;
};

struct CpuDeviceOptions {
  int count = 0;               // 0: as many as the processors allow
  int threads_per_device = 0;  // 0: processors / count; 1 where neither is given
  bool share = false;          // more devices than processors are fine; none is bound to any
  std::vector<CpuDeviceShape> shapes = {};  // unequal devices, in the place of `count`
};

// "4": so many equal ones, 0 for as many as fit. "1x2,2x1": one of two threads and two of one.
// "1@0,1@1,2@1-3": threads, and the processors that the device is bound to, which others may name
// too. Fills `count` or `shapes`; INVALID_ARGUMENT with what cannot be read.
absl::Status ReadCpuDevices(absl::string_view text, CpuDeviceOptions& options);

// Disjoint shares of `cpus` in their order, named cpu-0, cpu-1, ...; memory is divided equally.
// Without options there is one device a processor. INVALID_ARGUMENT where the devices need more
// processors than there are, or others.
absl::StatusOr<std::vector<Device>> DivideCpus(const std::vector<int64_t>& cpus,
                                               int64_t memory_bytes,
                                               const CpuDeviceOptions& options);

// Processors on which this process may run, ascending.
std::vector<int64_t> AllowedCpus();

// `gpus` as devices, with the type that a spec asks for.
std::vector<Device> GpuDevices(const std::vector<Gpu>& gpus);

// Memory that is in use on a GPU though no process shows: more than a driver takes for itself.
inline constexpr int64_t kUnseenMemoryBytes = int64_t{2} << 30;

// Who uses a device, as its driver sees it.
struct DeviceUse {
  std::vector<int64_t> processes = {};
  int64_t memory_bytes = 0;
  bool has_ranks = false;  // a rank of ours runs on it, or has just ended
};

// The facts about a process that can be told from outside.
struct ProcessView {
  std::function<bool(int64_t pid)> is_ours;
  // False for one of another pid namespace (a container's), which may go by any number here.
  std::function<bool(int64_t pid)> is_visible;
  std::function<std::string(int64_t pid)> describe;  // for the reason
};

// Marks the devices that somebody else uses: a process that is not ours, one that cannot be seen
// where no rank of ours could be it, or somebody who shows by nothing but the memory that is taken.
// `uses`: by device name. Devices that are set aside for errors stay so.
std::vector<Device> MarkUnmanagedUse(std::vector<Device> devices,
                                     const std::map<std::string, DeviceUse>& uses,
                                     const ProcessView& view);

// "process 4711 (python3 of anna)"; without what cannot be seen from here.
std::string DescribeProcess(int64_t pid);
// True where /proc shows the process.
bool IsProcessVisible(int64_t pid);

}  // namespace trainyard::agent
