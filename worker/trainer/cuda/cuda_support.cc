// Chooses a rank's GPU, shares one backend among all executables, and connects the GPUs of a gang.
#include "worker/trainer/cuda/cuda_support.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "common/base/interfaces.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "nlohmann/json.hpp"
#include "worker/engine/backend/cuda/cuda_backend.h"
#include "worker/engine/backend/cuda/runtime/runtime.h"
#include "worker/engine/make_backend.h"
#include "worker/engine/shared_backend.h"
#include "worker/parallel/nccl/nccl_communicator.h"
#include "worker/parallel/nccl/nccl_memory.h"
#include "worker/trainer/cuda/cuda_exchange.h"
#include "worker/trainer/pipeline/pipeline_executable.h"

namespace trainyard::trainer {
namespace {

// This is longer than NCCL takes to fail, so that all ranks hear of the failure.
constexpr absl::Duration kAgreementTimeout = absl::Minutes(3);

// A stage has four communicators, and those of the two directions wait for each other's ranks on
// the device at the same time. So their kernels must fit on it together, beside the one that sums
// gradients, and should leave most of it to the computation. No GPU has measured this number.
constexpr int kLinkBlocks = 4;

// Returns an empty path if the environment names no folder for caches.
std::string DefaultPlanCache() {
  constexpr char kFolder[] = "trainyard/cudnn_plans";
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache != '\0') return JoinPath(cache, kFolder);
  const char* const home = std::getenv("HOME");
  if (home != nullptr && *home != '\0') return JoinPath(JoinPath(home, ".cache"), kFolder);
  return "";
}

// Returns `folder` if files can be written there, and otherwise an empty path, since a training
// works without them.
std::string UsablePlanCache(const std::string& folder) {
  if (folder.empty()) return folder;
  absl::Status usable = MakeDirectories(folder);
  if (usable.ok() && access(folder.c_str(), W_OK) != 0) {
    usable = ErrnoStatus(errno, "cannot write to", folder);
  }
  if (usable.ok()) return folder;
  LogWarning("choices among cuDNN's plans are not kept",
             {{"folder", folder}, {"error", std::string(usable.message())}});
  return "";
}

// Returns the UUID of the rank's GPU, or of a part of one, or an empty text for the first GPU,
// which ranks without a UUID all take.
std::string UuidOf(const run_dir::RankAssignment& rank) {
  const bool is_uuid =
      absl::StartsWith(rank.device, "GPU-") || absl::StartsWith(rank.device, "MIG-");
  return is_uuid ? rank.device : "";
}

// Returns the number of ranks of this host that have this GPU.
int64_t RanksOn(const std::string& uuid, const run_dir::Assignment& assignment) {
  return std::count_if(
      assignment.ranks.begin(), assignment.ranks.end(),
      [&uuid](const run_dir::RankAssignment& rank) { return UuidOf(rank) == uuid; });
}

// Returns true if two ranks of the group that are on this host have the same GPU.
bool ShareDevice(const run_dir::Assignment& assignment, const parallel::Group& group) {
  std::set<std::string> devices;
  for (const run_dir::RankAssignment& rank : assignment.ranks) {
    const bool is_member =
        std::find(group.members.begin(), group.members.end(), rank.rank) != group.members.end();
    if (is_member && !devices.insert(UuidOf(rank)).second) return true;
  }
  return false;
}

// Returns true if `here` is true on any rank.
absl::StatusOr<bool> AnyRank(parallel::Communicator& host, bool here) {
  std::array<float, 1> ranks = {here ? 1.0F : 0.0F};
  TY_RETURN_IF_ERROR(host.AllReduce(absl::MakeSpan(ranks)));
  return ranks[0] > 0;
}

using NcclCommunicators = std::vector<std::unique_ptr<parallel::NcclCommunicator>>;

absl::StatusOr<NcclCommunicators> ConnectNccl(const DeviceGang& gang,
                                              absl::Span<const parallel::Group> groups,
                                              int blocks_max) {
  // Uses the interface that the worker was told to use, unless the environment names another one.
  // NCCL needs its name; the assignment may have an address.
  if (!gang.assignment.interface.empty()) {
    TY_ASSIGN_OR_RETURN(const InterfaceAddress interface, FindInterface(gang.assignment.interface));
    setenv("NCCL_SOCKET_IFNAME", absl::StrCat("=", interface.interface).c_str(),
           /*overwrite=*/0);
  }
  parallel::NcclOptions options;
  options.rank = gang.rank;
  options.world_size = gang.assignment.world_size;
  options.run_dir = gang.run_dir;
  options.blocks_max = blocks_max;
  options.cancelled = gang.cancelled;
  NcclCommunicators connected;
  for (const parallel::Group& group : groups) {
    options.group = group;
    TY_ASSIGN_OR_RETURN(auto communicator, parallel::ConnectNccl(options));
    connected.push_back(std::move(communicator));
  }
  return connected;
}

// Connects groups of the same ranks. Returns nothing if they must go by way of the host, because
// some of them share a GPU, NCCL does not connect all of them, or the transport says so. All ranks
// get the same result, since they must exchange in the same way. They agree over `host`.
absl::StatusOr<NcclCommunicators> ConnectWhereAllCan(const DeviceGang& gang,
                                                     absl::Span<const parallel::Group> groups,
                                                     int blocks_max, parallel::Communicator& host) {
  if (gang.transport == "staged") return NcclCommunicators();
  const bool wants_nccl = gang.transport == "nccl";
  host.set_timeout(kAgreementTimeout);
  TY_ASSIGN_OR_RETURN(const bool some_share,
                      AnyRank(host, ShareDevice(gang.assignment, groups.front())));
  if (some_share && wants_nccl) {
    return absl::FailedPreconditionError(
        "ranks share a GPU, which NCCL refuses; use --transport staged, or auto");
  }
  if (some_share) return NcclCommunicators();
  auto nccl = ConnectNccl(gang, groups, blocks_max);
  TY_ASSIGN_OR_RETURN(const bool some_failed, AnyRank(host, !nccl.ok()));
  if (!some_failed) return nccl;
  if (wants_nccl || absl::IsCancelled(nccl.status())) {
    return nccl.ok() ? absl::UnavailableError("another rank cannot connect with NCCL")
                     : nccl.status();
  }
  LogWarning("NCCL does not connect; values go by way of the host, which is slower",
             {{"error", std::string(nccl.ok() ? "of another rank" : nccl.status().message())}});
  return NcclCommunicators();
}

// cuDNN proposes engines that it would have to compile only if it can open a driver.
void WarnWithoutDriver() {
  void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (driver != nullptr) {
    (void)dlclose(driver);
    return;
  }
  LogWarning(
      "no NVIDIA driver is installed here, so cuDNN proposes fewer plans than on the device: the "
      "plan may name layers that cuDNN does not refuse there");
}

// Returns a number of a device's description, or nothing if it is not there.
std::optional<int64_t> DescribedNumber(const std::string& description, const char* name) {
  const auto json = nlohmann::json::parse(description, nullptr, /*allow_exceptions=*/false);
  const auto number = json.is_object() ? json.find(name) : json.end();
  if (number == json.end() || !number->is_number_integer()) return std::nullopt;
  return number->get<int64_t>();
}

}  // namespace

absl::Status CudaSupport::Register(const DeviceFlags& flags) {
  engine::CudaBackendOptions options;
  options.plan_cache_folder =
      UsablePlanCache(flags.plan_cache.empty() ? DefaultPlanCache() : flags.plan_cache);
  if (!flags.description.empty()) {
    TY_ASSIGN_OR_RETURN(description_, ReadFile(flags.description));
    options.device_description = description_;
    WarnWithoutDriver();
    options.described_capability =
        static_cast<int>(DescribedNumber(description_, "major").value_or(0));
  }
  options.shared_memory = {.allocate = parallel::AllocateNcclMemory,
                           .free = parallel::FreeNcclMemory};
  engine::RegisterBackend("cuda", engine::ShareBackend([options = std::move(options)] {
                            return engine::MakeCudaBackend(options);
                          }));
  return absl::OkStatus();
}

absl::Status CudaSupport::Choose(const run_dir::Assignment& assignment,
                                 run_dir::RankAssignment& rank) {
  const std::string uuid = UuidOf(rank);
  if (!uuid.empty()) setenv("CUDA_VISIBLE_DEVICES", uuid.c_str(), /*overwrite=*/1);
  TY_ASSIGN_OR_RETURN(int64_t memory_bytes, MemoryBytes());
  // The process may see less than the worker: a part of a GPU that was divided meanwhile.
  if (rank.memory_bytes > 0) memory_bytes = std::min(memory_bytes, rank.memory_bytes);
  rank.memory_bytes = memory_bytes / RanksOn(uuid, assignment);
  return absl::OkStatus();
}

absl::StatusOr<int64_t> CudaSupport::MemoryBytes() {
  if (!description_.empty()) {
    const std::optional<int64_t> total = DescribedNumber(description_, "totalGlobalMem");
    if (total.has_value()) return *total;
    return absl::InvalidArgumentError(
        "the device's description has no totalGlobalMem; give its bytes with --memory");
  }
  TY_RETURN_IF_ERROR(engine::cuda::CheckDevice());
  return engine::cuda::DeviceMemory();
}

absl::StatusOr<std::unique_ptr<parallel::GradientExchange>> CudaSupport::MakeExchange(
    const DeviceGang& gang, DeviceExchangeRequest request) {
  TY_ASSIGN_OR_RETURN(NcclCommunicators nccl,
                      ConnectWhereAllCan(gang, {request.group}, /*blocks_max=*/0, *request.host));
  return MakeCudaExchange(nccl.empty() ? nullptr : std::move(nccl.front()), std::move(request));
}

absl::StatusOr<std::unique_ptr<parallel::StageLink>> CudaSupport::MakeLink(
    const DeviceGang& gang, DeviceLinkRequest request) {
  const NeighbourLines& lines = request.lines;
  // Both ends connect in one order, in which the stage before sends first.
  const bool sends_first = lines.host.peer > 0;
  const parallel::Group& first = sends_first ? lines.sends : lines.receives;
  const parallel::Group& second = sends_first ? lines.receives : lines.sends;
  parallel::Communicator& host = sends_first ? *lines.host.sends : *lines.host.receives;
  TY_ASSIGN_OR_RETURN(NcclCommunicators nccl,
                      ConnectWhereAllCan(gang, {first, second}, kLinkBlocks, host));
  if (nccl.empty()) return MakeCudaLink(/*nccl=*/{}, std::move(request));
  parallel::NcclLines connected = {.receives = std::move(nccl[sends_first ? 1 : 0]),
                                   .sends = std::move(nccl[sends_first ? 0 : 1])};
  return MakeCudaLink(std::move(connected), std::move(request));
}

}  // namespace trainyard::trainer
