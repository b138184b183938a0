// Divides processors among CPU devices, and distinguishes our processes on a GPU from others.
#include "worker/agent/device_inventory.h"

#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/files.h"
#include "common/base/system_accounts.h"

namespace trainyard::agent {
namespace {

// Reads a file of /proc that contains a word or a few lines.
constexpr int64_t kSmallFileBytes = 64 << 10;

// Returns who else uses the device, or an empty text if nobody does.
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
    return "some of its memory is used by a process that cannot be seen from here";
  }
  return "";
}

// The limits of the threads of a device, and of the devices of a host.
constexpr int kCpuDevicesMax = 1024;

bool ReadCount(absl::string_view text, int min, int& value) {
  return absl::SimpleAtoi(text, &value) && value >= min && value <= kCpuDevicesMax;
}

// Parses "3" or "1-3".
bool ReadCpuRange(absl::string_view text, std::vector<int64_t>& cpus) {
  const std::vector<absl::string_view> ends = absl::StrSplit(text, '-');
  int64_t first = 0;
  int64_t last = 0;
  if (ends.size() > 2 || !absl::SimpleAtoi(ends.front(), &first) ||
      !absl::SimpleAtoi(ends.back(), &last)) {
    return false;
  }
  if (first < 0 || last < first || last >= CPU_SETSIZE) return false;
  for (int64_t cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
  return true;
}

// Parses "2x1" or "1@0-1", and adds it to `shapes`.
bool ReadShapes(absl::string_view text, std::vector<CpuDeviceShape>& shapes) {
  const std::vector<absl::string_view> bound = absl::StrSplit(text, '@');
  CpuDeviceShape shape;
  if (bound.size() == 2) {
    const bool is_read =
        ReadCount(bound[0], 1, shape.threads) && ReadCpuRange(bound[1], shape.cpus);
    shapes.push_back(std::move(shape));
    return is_read;
  }
  const std::vector<absl::string_view> times = absl::StrSplit(text, 'x');
  int count = 0;
  if (times.size() != 2 || !ReadCount(times[0], 1, count) ||
      !ReadCount(times[1], 1, shape.threads)) {
    return false;
  }
  shapes.insert(shapes.end(), static_cast<size_t>(count), shape);
  return shapes.size() <= kCpuDevicesMax;
}

// Returns true for a compute capability ("9.0") of 8 or more, with which multiplications in bf16
// came. An unknown one has no bf16.
bool HasBf16(const Gpu& gpu) {
  const std::vector<absl::string_view> parts = absl::StrSplit(gpu.compute_capability, '.');
  int major = 0;
  return absl::SimpleAtoi(parts.front(), &major) && major >= 8;
}

Device CpuDevice(size_t number, int threads, int64_t memory_bytes) {
  Device device;
  device.name = absl::StrCat("cpu-", number);
  device.type = "cpu";
  device.product = "CPU";
  device.memory_bytes = memory_bytes;
  device.threads = threads;
  return device;
}

absl::StatusOr<std::vector<Device>> DivideByShape(const std::vector<int64_t>& cpus,
                                                  int64_t memory_bytes,
                                                  const CpuDeviceOptions& options) {
  if (options.threads_per_device != 0) {
    return absl::InvalidArgumentError(
        "unequal CPU devices name their own threads; leave threads_per_device out");
  }
  int64_t needed = 0;
  bool is_bound = false;
  for (const CpuDeviceShape& shape : options.shapes) {
    if (shape.cpus.empty()) needed += shape.threads;
    is_bound = is_bound || !shape.cpus.empty();
    for (const int64_t cpu : shape.cpus) {
      if (std::find(cpus.begin(), cpus.end(), cpu) != cpus.end()) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("processor ", cpu, " is none of the ", cpus.size(),
                       " that this process may use: ", absl::StrJoin(cpus, ", ")));
    }
  }
  if (is_bound && (needed > 0 || options.share)) {
    return absl::InvalidArgumentError(
        "either all CPU devices name their processors, or none; and those that do share them by "
        "naming the same");
  }
  if (!options.share && needed > static_cast<int64_t>(cpus.size())) {
    return absl::InvalidArgumentError(absl::StrCat(
        options.shapes.size(), " CPU devices need ", needed, " processors; this process may use ",
        cpus.size(), ", which devices can share (share_cpus)"));
  }
  std::vector<Device> devices;
  auto next = cpus.begin();
  for (const CpuDeviceShape& shape : options.shapes) {
    const auto count = static_cast<int64_t>(options.shapes.size());
    Device device = CpuDevice(devices.size(), shape.threads, memory_bytes / count);
    device.cpus = shape.cpus;
    if (shape.cpus.empty() && !options.share) {
      device.cpus.assign(next, next + shape.threads);
      next += shape.threads;
    }
    devices.push_back(std::move(device));
  }
  return devices;
}

}  // namespace

absl::Status ReadCpuDevices(absl::string_view text, CpuDeviceOptions& options) {
  options.count = 0;
  options.shapes.clear();
  if (ReadCount(text, 0, options.count)) return absl::OkStatus();
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    if (ReadShapes(part, options.shapes)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "'", text,
        "' names no CPU devices; expected their number (4), groups of equal ones as "
        "devices x threads (1x2,2x1), or threads @ processors of each (1@0,1@1,2@2-3); at most ",
        kCpuDevicesMax));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Device>> DivideCpus(const std::vector<int64_t>& cpus,
                                               int64_t memory_bytes,
                                               const CpuDeviceOptions& options) {
  if (!options.shapes.empty()) return DivideByShape(cpus, memory_bytes, options);
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
    Device device = CpuDevice(devices.size(), threads, memory_bytes / count);
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
    device.bf16 = HasBf16(gpu);
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
    // The program names itself. The reason is shown to people.
    program = std::string(absl::StripTrailingAsciiWhitespace(*text));
    for (char& c : program) {
      if (!absl::ascii_isprint(static_cast<unsigned char>(c))) c = '?';
    }
  }
  struct stat about {};
  std::string user;
  if (stat(folder.c_str(), &about) == 0) {
    user = UserName(about.st_uid);
  }
  std::string process = absl::StrCat("process ", pid);
  if (program.empty() || user.empty()) return process;
  return absl::StrCat(process, " (", program, " of ", user, ")");
}

}  // namespace trainyard::agent
