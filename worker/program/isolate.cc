// Collects what a program needs of its host, for the sandbox or the container.
#include "worker/program/isolate.h"

#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "common/base/program_paths.h"
#include "common/base/status_macros.h"
#include "worker/program/container.h"
#include "worker/program/mounts.h"
#include "worker/program/sandbox.h"

namespace trainyard::program {
namespace {

using run_dir::IsolationLevel;

constexpr char kGpuFolder[] = "/proc/driver/nvidia/gpus";

std::string MarkIn(const std::string& folder) {
  return JoinPath(folder, "inside");
}

std::vector<std::string> GpusOf(const IsolationOf& of) {
  std::vector<std::string> gpus;
  for (const run_dir::RankAssignment& other : of.assignment.ranks) {
    const bool is_mine = of.spec.is_per_host || other.rank == of.rank.rank;
    if (is_mine && !other.device.empty() && other.device_type != "cpu") {
      gpus.push_back(other.device);
    }
  }
  return gpus;
}

Mounts MountsOf(const IsolationOf& of) {
  Mounts mounts;
  mounts.home = of.home;
  mounts.start = of.start;
  mounts.write = {of.attempt_dir};
  if (!of.cache.empty() && FileExists(of.cache)) mounts.write.push_back(of.cache);
  if (!of.files.data.empty()) mounts.read.push_back(of.assignment.dataset_dir);
  if (!of.files.secrets.empty()) mounts.read.push_back(of.files.secrets);
  mounts.gpu_uuids = GpusOf(of);
  mounts.limits = OwnLimits();
  mounts.is_alone = of.assignment.world_size == 1;
  return mounts;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> IsolatedWords(const IsolationOf& of,
                                                       const std::vector<std::string>& command) {
  const run_dir::Isolation& isolation = of.assignment.isolation;
  Mounts mounts = MountsOf(of);
  if (isolation.level == IsolationLevel::kSandbox) {
    TY_ASSIGN_OR_RETURN(mounts.gpus, GpuNodes(mounts.gpu_uuids, kGpuFolder));
    return SandboxWords(isolation.program, SiblingProgram("trainyard-program"),
                        MarkIn(of.files.folder), mounts, command);
  }
  if (isolation.level == IsolationLevel::kContainer) {
    return ContainerWords(isolation, ImageOf(of.spec.container, of.start, of.home), mounts,
                          of.variables, command);
  }
  return command;
}

bool HasBegun(const run_dir::Isolation& isolation, const std::string& folder, int exit_code) {
  if (isolation.level == IsolationLevel::kSandbox) return FileExists(MarkIn(folder));
  if (isolation.level != IsolationLevel::kContainer) return true;
  return !IsRuntimeFailure(isolation.runtime, exit_code);
}

}  // namespace trainyard::program
