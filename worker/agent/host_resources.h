// Finds the processors and the memory of this host that jobs may use, and chooses processors for
// ranks.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/agent/report.h"

namespace trainyard::agent {

// The resources of this host that jobs may use.
struct HostResources {
  int64_t cpus = 0;  // 0 if they are not divided
  int64_t memory_bytes = 0;
  // The processors among which those of ranks are chosen, in ascending order.
  std::vector<int64_t> processors = {};

  friend bool operator==(const HostResources&, const HostResources&) = default;
};

// The resources that this host keeps for others than jobs.
struct ReservedResources {
  int cpus = 0;
  int64_t memory_bytes = 0;
};

// Returns the processors and the memory that are left to jobs: at most `cpu_limit` processors, the
// quota of the control group (0 for none). Returns INVALID_ARGUMENT with the flag if nothing is
// left.
absl::StatusOr<HostResources> MakeHost(std::vector<int64_t> processors, int64_t cpu_limit,
                                       int64_t memory_bytes, const ReservedResources& reserved);

// Adds the processors that the CPU devices promise beyond those that are there: devices may share
// processors if somebody has said so.
void CoverDevices(const std::vector<Device>& devices, HostResources& host);

// Returns `count` of the host's processors that are not taken, those of `preferred` first, or those
// that are last. If there are fewer, it returns none.
std::vector<int64_t> ChooseCpus(const HostResources& host, const std::vector<int64_t>& preferred,
                                const std::set<int64_t>& taken, int64_t count);

// Parses a list of processors as the kernel prints it: "0-3,8". Returns none for another text.
std::vector<int64_t> ParseCpuList(absl::string_view text);

// Returns the processors near the PCI device "00000000:3B:00.0", or none if the kernel does not
// tell.
std::vector<int64_t> CpusNear(absl::string_view pci_bus_id);

}  // namespace trainyard::agent
