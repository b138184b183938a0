// Says what of the host a program finds in its sandbox or container.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace trainyard::program {

struct Mounts {
  std::string home;                // of the job's owner; empty for none
  std::string start;               // where the program starts
  std::vector<std::string> write;  // other folders into which it may write
  std::vector<std::string> read;   // folders that it may only read
  std::vector<std::string> gpus;   // the nodes of its GPUs: /dev/nvidia0
  std::vector<std::string> gpu_uuids;
  // Limits of its processes, as podman takes them: "nofile=1024:4096". Podman's own defaults may be
  // more than this process has, and then nothing starts.
  std::vector<std::string> limits;
  // The job has this rank alone. Ranks of a gang share memory, by the numbers of their processes.
  bool is_alone = true;
};

// Returns the limits of this process.
std::vector<std::string> OwnLimits();

// Returns the nodes of GPUs from what NVIDIA's driver tells in `folder`
// (/proc/driver/nvidia/gpus). Returns NOT_FOUND with the GPU that it does not tell, which may be a
// part of one (MIG).
absl::StatusOr<std::vector<std::string>> GpuNodes(const std::vector<std::string>& uuids,
                                                  const std::string& folder);

}  // namespace trainyard::program
