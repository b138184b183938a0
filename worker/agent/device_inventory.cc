#include "worker/agent/device_inventory.h"

#include <pwd.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/files.h"

namespace trainyard::agent {
namespace {

// Files of /proc that hold a word or a few lines.
constexpr int64_t kSmallFileBytes = 64 << 10;

// Empty where nobody else uses the device.
std::string UnmanagedUse(const DeviceUse& use, const ProcessView& view) {
  bool is_one_unseen = false;
  for (const int64_t pid : use.processes) {
    if (!view.is_visible(pid)) {
      is_one_unseen = true;
    } else if (!view.is_ours(pid)) {
      return absl::StrCat(view.describe(pid), " uses it, which no job of ours started");
    }
  }
  if (use.has_ranks) return "";
  if (is_one_unseen) {
    return "a process that cannot be seen from here, perhaps of a container, uses it";
  }
  if (use.processes.empty() && use.memory_bytes > kUnseenMemoryBytes) {
    return "memory of it is in use by somebody who cannot be seen from here";
  }
  return "";
}

}  // namespace

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
  const bool fit = options.share || static_cast<int64_t>(count) * threads <= available;
  if (count < 1 || !fit) {
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
    device.threads = threads;
    if (!options.share) {
      const auto begin = cpus.begin() + static_cast<int64_t>(i) * threads;
      device.cpus.assign(begin, begin + threads);
    }
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

std::vector<Device> GpuDevices(const std::vector<Gpu>& gpus) {
  std::vector<Device> devices;
  for (const Gpu& gpu : gpus) {
    Device device;
    device.name = gpu.uuid;
    device.type = DeviceTypeOf(gpu.product);
    device.product = gpu.product;
    device.memory_bytes = gpu.memory_bytes;
    device.island = gpu.island;
    devices.push_back(std::move(device));
  }
  return devices;
}

std::vector<Device> MarkUnmanagedUse(std::vector<Device> devices,
                                     const std::map<std::string, DeviceUse>& uses,
                                     const ProcessView& view) {
  for (Device& device : devices) {
    if (device.health == Device::Health::kQuarantined) continue;
    device.health = Device::Health::kOk;
    device.health_reason.clear();
    const auto use = uses.find(device.name);
    if (use == uses.end()) continue;
    const std::string reason = UnmanagedUse(use->second, view);
    if (reason.empty()) continue;
    device.health = Device::Health::kUnmanagedUse;
    device.health_reason = reason;
  }
  return devices;
}

bool IsProcessVisible(int64_t pid) {
  return pid > 0 && access(absl::StrCat("/proc/", pid).c_str(), F_OK) == 0;
}

std::string DescribeProcess(int64_t pid) {
  const std::string folder = absl::StrCat("/proc/", pid);
  std::string program;
  if (auto text = ReadFile(folder + "/comm", kSmallFileBytes); text.ok()) {
    // The program names itself; the reason is shown to people.
    program = std::string(absl::StripTrailingAsciiWhitespace(*text));
    for (char& c : program) {
      if (!absl::ascii_isprint(static_cast<unsigned char>(c))) c = '?';
    }
  }
  struct stat about {};
  std::string user;
  if (stat(folder.c_str(), &about) == 0) {
    std::array<char, 4096> space{};
    passwd entry{};
    passwd* found = nullptr;
    const int failed = getpwuid_r(about.st_uid, &entry, space.data(), space.size(), &found);
    user = failed == 0 && found != nullptr ? found->pw_name : absl::StrCat("user ", about.st_uid);
  }
  const std::string process = absl::StrCat("process ", pid);
  if (program.empty() || user.empty()) return process;
  return absl::StrCat(process, " (", program, " of ", user, ")");
}

}  // namespace trainyard::agent
