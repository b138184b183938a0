#include "worker/agent/device_inventory.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace trainyard::agent {

absl::StatusOr<std::vector<Device>> DivideCpus(const std::vector<int64_t>& cpus,
                                               int64_t memory_bytes,
                                               const CpuDeviceOptions& options) {
  const auto available = static_cast<int>(cpus.size());
  if (options.count < 0 || options.threads_per_device < 0) {
    return absl::InvalidArgumentError("CPU devices and their threads cannot be negative");
  }
  int threads = options.threads_per_device;
  if (threads == 0) threads = options.count == 0 ? 1 : std::max(1, available / options.count);
  const int count = options.count == 0 ? available / threads : options.count;
  if (count < 1 || static_cast<int64_t>(count) * threads > available) {
    return absl::InvalidArgumentError(
        absl::StrCat(std::max(1, count), " CPU devices of ", threads, " threads need ",
                     static_cast<int64_t>(std::max(1, count)) * threads,
                     " processors; this process may use ", available));
  }
  std::vector<Device> devices;
  for (int i = 0; i < count; ++i) {
    Device device;
    device.name = absl::StrCat("cpu-", i);
    device.type = "cpu";
    device.product = "CPU";
    device.memory_bytes = memory_bytes / count;
    const auto begin = cpus.begin() + static_cast<int64_t>(i) * threads;
    device.cpus.assign(begin, begin + threads);
    device.threads = threads;
    devices.push_back(std::move(device));
  }
  return devices;
}

std::vector<int64_t> AllowedCpus() {
  std::vector<int64_t> cpus;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(static_cast<size_t>(cpu), &set)) cpus.push_back(cpu);
  }
  return cpus;
}

int64_t MachineMemory() {
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<int64_t>(sysconf(_SC_PAGESIZE));
}

std::vector<Device> GpuDevices(const std::vector<Gpu>& gpus) {
  std::vector<Device> devices;
  for (const Gpu& gpu : gpus) {
    Device device;
    device.name = gpu.uuid;
    device.type = DeviceTypeOf(gpu.product);
    device.product = gpu.product;
    device.memory_bytes = gpu.memory_bytes;
    devices.push_back(std::move(device));
  }
  return devices;
}

std::vector<Device> MarkUnmanagedUse(std::vector<Device> devices,
                                     const std::map<std::string, std::vector<int64_t>>& processes,
                                     const std::function<bool(int64_t pid)>& is_ours) {
  for (Device& device : devices) {
    device.health = Device::Health::kOk;
    device.health_reason.clear();
    const auto found = processes.find(device.name);
    if (found == processes.end()) continue;
    for (const int64_t pid : found->second) {
      if (is_ours(pid)) continue;
      device.health = Device::Health::kUnmanagedUse;
      device.health_reason =
          absl::StrCat("process ", pid, " uses it, which no job of ours started");
      break;
    }
  }
  return devices;
}

}  // namespace trainyard::agent
