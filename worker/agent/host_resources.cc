// Divides the processors of this host among ranks, near the devices that these use.
#include "worker/agent/host_resources.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/files.h"
#include "common/base/strings.h"

namespace trainyard::agent {
namespace {

// No machine has more.
constexpr int64_t kProcessorsMax = 65536;
constexpr int64_t kListBytesMax = 64 << 10;

}  // namespace

absl::StatusOr<HostResources> MakeHost(std::vector<int64_t> processors, int64_t cpu_limit,
                                       int64_t memory_bytes, const ReservedResources& reserved) {
  const auto there = static_cast<int64_t>(processors.size());
  HostResources host;
  host.cpus = (cpu_limit > 0 ? std::min(there, cpu_limit) : there) - reserved.cpus;
  if (reserved.cpus < 0 || host.cpus < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--reserve_cpus ", reserved.cpus, ": this process may use ",
                     host.cpus + reserved.cpus, " processors, and jobs need at least 1 of them"));
  }
  if (reserved.memory_bytes < 0 || reserved.memory_bytes >= memory_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("--reserve_memory ", reserved.memory_bytes, ": this process may use ",
                     FormatBytes(memory_bytes), ", and jobs need some of that"));
  }
  host.memory_bytes = memory_bytes - reserved.memory_bytes;
  // The first processors serve the kernel's interrupts, so that these are held back.
  processors.erase(processors.begin(), processors.begin() + reserved.cpus);
  host.processors = std::move(processors);
  return host;
}

void CoverDevices(const std::vector<Device>& devices, HostResources& host) {
  int64_t threads = 0;
  for (const Device& device : devices) {
    if (device.type == "cpu") threads += device.threads;
  }
  host.cpus = std::max(host.cpus, threads);
}

std::vector<int64_t> ChooseCpus(const HostResources& host, const std::vector<int64_t>& preferred,
                                const std::set<int64_t>& taken, int64_t count) {
  std::vector<int64_t> chosen;
  std::set<int64_t> known = taken;
  const auto take = [&](int64_t cpu) {
    if (static_cast<int64_t>(chosen.size()) < count && known.insert(cpu).second) {
      chosen.push_back(cpu);
    }
  };
  for (const int64_t cpu : preferred) {
    if (std::binary_search(host.processors.begin(), host.processors.end(), cpu)) take(cpu);
  }
  for (auto cpu = host.processors.rbegin(); cpu != host.processors.rend(); ++cpu) take(*cpu);
  if (static_cast<int64_t>(chosen.size()) < count) return {};
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

std::vector<int64_t> ParseCpuList(absl::string_view text) {
  std::vector<int64_t> cpus;
  const absl::string_view stripped = absl::StripAsciiWhitespace(text);
  for (const absl::string_view part : absl::StrSplit(stripped, ',', absl::SkipEmpty())) {
    const std::vector<absl::string_view> ends = absl::StrSplit(part, absl::MaxSplits('-', 1));
    int64_t first = 0;
    int64_t last = 0;
    if (!absl::SimpleAtoi(ends.front(), &first) || !absl::SimpleAtoi(ends.back(), &last) ||
        first < 0 || last < first || last >= kProcessorsMax) {
      return {};
    }
    for (int64_t cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

std::vector<int64_t> CpusNear(absl::string_view pci_bus_id) {
  // The driver prints eight digits of the domain, and the kernel four.
  std::string id = absl::AsciiStrToLower(pci_bus_id);
  if (id.size() > 4 && id.compare(0, 4, "0000") == 0 && id.find(':') == 8) id.erase(0, 4);
  if (id.empty() || id.find('/') != std::string::npos) return {};
  const auto text =
      ReadFile(absl::StrCat("/sys/bus/pci/devices/", id, "/local_cpulist"), kListBytesMax);
  return text.ok() ? ParseCpuList(*text) : std::vector<int64_t>();
}

}  // namespace trainyard::agent
