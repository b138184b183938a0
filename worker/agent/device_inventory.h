// Lists the devices of this host: GPUs if the driver shows some, and shares of the CPU.
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

// The shape of one CPU device.
struct CpuDeviceShape {
  int threads = 1;
  std::vector<int64_t> cpus = {};  // the processors that it is bound to; if empty, it is given some

  friend bool operator==(const CpuDeviceShape&, const CpuDeviceShape&) = default;
};

struct CpuDeviceOptions {
  int count = 0;               // 0 means as many as the processors allow
  int threads_per_device = 0;  // 0 means processors / count, or 1 if neither is given
  bool share = false;          // allows more devices than processors; none is then bound to any
  std::vector<CpuDeviceShape> shapes = {};  // unequal devices, instead of `count`
};

// Parses a list of devices. "4" means that many equal ones, or as many as fit for 0. "1x2,2x1"
// means one of two threads and two of one. "1@0,1@1,2@1-3" gives threads, and the processors to
// which the device is bound; several devices may name the same ones. Fills `count` or `shapes`.
// Returns INVALID_ARGUMENT with what cannot be read.
absl::Status ReadCpuDevices(absl::string_view text, CpuDeviceOptions& options);

// Returns disjoint shares of `cpus` in their order, named cpu-0, cpu-1, ...; memory is divided
// equally. Without options there is one device for each processor. Returns INVALID_ARGUMENT if the
// devices need more processors than there are, or other ones.
absl::StatusOr<std::vector<Device>> DivideCpus(const std::vector<int64_t>& cpus,
                                               int64_t memory_bytes,
                                               const CpuDeviceOptions& options);

// Returns the processors on which this process may run, in ascending order.
std::vector<int64_t> AllowedCpus();

// Returns `gpus` as devices, with the type that a spec asks for.
std::vector<Device> GpuDevices(const std::vector<Gpu>& gpus);

// If a GPU has more memory in use than this while no process shows, somebody uses it. A driver
// takes less for itself.
inline constexpr int64_t kUnseenMemoryBytes = int64_t{2} << 30;

// Says who uses a device, as its driver sees it.
struct DeviceUse {
  std::vector<int64_t> processes = {};
  int64_t memory_bytes = 0;
  bool has_ranks = false;  // a rank of ours runs on it, or has just ended
};

// The facts about a process that can be found out from outside.
struct ProcessView {
  std::function<bool(int64_t pid)> is_ours;
  // Returns false for a process of another pid namespace (a container's), which may have any number
  // here.
  std::function<bool(int64_t pid)> is_visible;
  std::function<std::string(int64_t pid)> describe;  // describes the process in a reason
};

// Marks the devices that somebody else uses: through a process that is not ours, through one that
// cannot be seen and cannot be a rank of ours, or only through memory that is taken. `uses` is by
// device name. Devices that are set aside for errors stay so.
std::vector<Device> MarkUnmanagedUse(std::vector<Device> devices,
                                     const std::map<std::string, DeviceUse>& uses,
                                     const ProcessView& view);

// Returns "process 4711 (python3 of anna)", without the parts that cannot be seen from here.
std::string DescribeProcess(int64_t pid);
// Returns true if /proc shows the process.
bool IsProcessVisible(int64_t pid);

}  // namespace trainyard::agent
