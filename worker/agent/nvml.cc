#include "worker/agent/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"

namespace trainyard::agent {
namespace {

// The part of NVML's C interface that is used, declared here because its header comes with CUDA.
using NvmlReturn = int;
using NvmlDevice = struct NvmlDeviceHandle*;
constexpr NvmlReturn kSuccess = 0;
constexpr NvmlReturn kInsufficientSize = 7;
// nvmlGpuP2PCapsIndex_t and nvmlGpuP2PStatus_t. An NVSwitch counts as links between all its GPUs.
constexpr int kP2pOverNvlink = 2;
constexpr int kP2pOk = 0;
constexpr unsigned kUuidBytes = 96;
constexpr unsigned kNameBytes = 96;
constexpr unsigned kProcessesMax = 1024;

struct NvmlMemory {
  uint64_t total;
  uint64_t free;
  uint64_t used;
};

// nvmlProcessInfo_t as of nvmlDeviceGetComputeRunningProcesses_v3.
struct NvmlProcess {
  unsigned pid;
  uint64_t used_memory;
  unsigned gpu_instance;
  unsigned compute_instance;
};

absl::Status Check(NvmlReturn code, absl::string_view what) {
  if (code == kSuccess) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("NVML: ", what, " failed with code ", code));
}

}  // namespace

struct Nvml::Functions {
  NvmlReturn (*init)() = nullptr;
  NvmlReturn (*shutdown)() = nullptr;
  NvmlReturn (*count)(unsigned*) = nullptr;
  NvmlReturn (*by_index)(unsigned, NvmlDevice*) = nullptr;
  NvmlReturn (*by_uuid)(const char*, NvmlDevice*) = nullptr;
  NvmlReturn (*uuid)(NvmlDevice, char*, unsigned) = nullptr;
  NvmlReturn (*name)(NvmlDevice, char*, unsigned) = nullptr;
  NvmlReturn (*memory)(NvmlDevice, NvmlMemory*) = nullptr;
  NvmlReturn (*processes)(NvmlDevice, unsigned*, NvmlProcess*) = nullptr;
  // Null where the driver is too old for it: then no links are known.
  NvmlReturn (*p2p)(NvmlDevice, NvmlDevice, int, int*) = nullptr;
};

Nvml::Nvml(void* library, std::unique_ptr<Functions> functions)
    : library_(library), functions_(std::move(functions)) {}

Nvml::~Nvml() {
  (void)functions_->shutdown();
  dlclose(library_);
}

absl::StatusOr<std::unique_ptr<Nvml>> Nvml::Open(const std::string& library) {
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return absl::NotFoundError(absl::StrCat("'", library, "' cannot be loaded: ", dlerror()));
  }
  auto functions = std::make_unique<Functions>();
  std::vector<std::string> missing;
  const auto load = [&](const char* symbol, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, symbol));
    if (function == nullptr) missing.push_back(symbol);
  };
  load("nvmlInit_v2", functions->init);
  load("nvmlShutdown", functions->shutdown);
  load("nvmlDeviceGetCount_v2", functions->count);
  load("nvmlDeviceGetHandleByIndex_v2", functions->by_index);
  load("nvmlDeviceGetHandleByUUID", functions->by_uuid);
  load("nvmlDeviceGetUUID", functions->uuid);
  load("nvmlDeviceGetName", functions->name);
  load("nvmlDeviceGetMemoryInfo", functions->memory);
  load("nvmlDeviceGetComputeRunningProcesses_v3", functions->processes);
  functions->p2p =
      reinterpret_cast<decltype(functions->p2p)>(dlsym(handle, "nvmlDeviceGetP2PStatus"));
  absl::Status status = absl::OkStatus();
  if (!missing.empty()) {
    status = absl::UnavailableError(
        absl::StrCat("'", library, "' lacks ", absl::StrJoin(missing, ", ")));
  } else {
    status = Check(functions->init(), "nvmlInit_v2");
  }
  if (!status.ok()) {
    dlclose(handle);
    return status;
  }
  return std::unique_ptr<Nvml>(new Nvml(handle, std::move(functions)));
}

absl::StatusOr<std::vector<Gpu>> Nvml::ListGpus() {
  unsigned count = 0;
  TY_RETURN_IF_ERROR(Check(functions_->count(&count), "nvmlDeviceGetCount_v2"));
  std::vector<Gpu> gpus;
  std::vector<NvmlDevice> handles;
  for (unsigned i = 0; i < count; ++i) {
    NvmlDevice device = nullptr;
    std::array<char, kUuidBytes> uuid{};
    std::array<char, kNameBytes> name{};
    NvmlMemory memory{};
    TY_RETURN_IF_ERROR(Check(functions_->by_index(i, &device), "nvmlDeviceGetHandleByIndex_v2"));
    TY_RETURN_IF_ERROR(Check(functions_->uuid(device, uuid.data(), kUuidBytes - 1), "GetUUID"));
    TY_RETURN_IF_ERROR(Check(functions_->name(device, name.data(), kNameBytes - 1), "GetName"));
    TY_RETURN_IF_ERROR(Check(functions_->memory(device, &memory), "GetMemoryInfo"));
    gpus.push_back({uuid.data(), name.data(), static_cast<int64_t>(memory.total)});
    handles.push_back(device);
  }
  const std::vector<int> islands =
      NumberIslands(static_cast<int>(gpus.size()), [&](int first, int second) {
        int p2p = -1;
        return functions_->p2p != nullptr &&
               functions_->p2p(handles[static_cast<size_t>(first)],
                               handles[static_cast<size_t>(second)], kP2pOverNvlink,
                               &p2p) == kSuccess &&
               p2p == kP2pOk;
      });
  for (size_t i = 0; i < gpus.size(); ++i) gpus[i].island = islands[i];
  return gpus;
}

absl::StatusOr<std::vector<int64_t>> Nvml::ComputeProcesses(const std::string& uuid) {
  NvmlDevice device = nullptr;
  TY_RETURN_IF_ERROR(Check(functions_->by_uuid(uuid.c_str(), &device), "GetHandleByUUID"));
  std::vector<NvmlProcess> processes(kProcessesMax);
  unsigned count = kProcessesMax;
  const NvmlReturn code = functions_->processes(device, &count, processes.data());
  // More than fit: those that did fit are enough to know that the device is in use.
  if (code == kInsufficientSize) count = kProcessesMax;
  if (code != kInsufficientSize) TY_RETURN_IF_ERROR(Check(code, "GetComputeRunningProcesses"));
  std::vector<int64_t> pids;
  for (unsigned i = 0; i < std::min(count, kProcessesMax); ++i) pids.push_back(processes[i].pid);
  return pids;
}

std::vector<int> NumberIslands(int count, const std::function<bool(int, int)>& linked) {
  std::vector<int> islands(static_cast<size_t>(count), 0);
  int last = 0;
  for (int first = 0; first < count; ++first) {
    if (islands[static_cast<size_t>(first)] != 0) continue;
    std::vector<int> reached = {first};
    for (size_t next = 0; next < reached.size(); ++next) {
      for (int other = first + 1; other < count; ++other) {
        int& island = islands[static_cast<size_t>(other)];
        if (island != 0 || other == reached[next] || !linked(reached[next], other)) continue;
        island = last + 1;
        reached.push_back(other);
      }
    }
    if (reached.size() > 1) islands[static_cast<size_t>(first)] = ++last;
  }
  return islands;
}

std::string DeviceTypeOf(const std::string& product) {
  std::vector<std::string> words;
  for (const absl::string_view word :
       absl::StrSplit(product, absl::ByAnyChar(" -_/()"), absl::SkipEmpty())) {
    std::string lower;
    for (const char c : absl::AsciiStrToLower(word)) {
      if (absl::ascii_isalnum(static_cast<unsigned char>(c))) lower.push_back(c);
    }
    // The maker, the brand, the form factor and the memory are no part of the type.
    const bool memory = lower.size() > 2 && absl::EndsWith(lower, "gb") &&
                        absl::ascii_isdigit(static_cast<unsigned char>(lower.front()));
    if (lower.empty() || lower == "nvidia" || lower == "geforce" || lower == "tesla" ||
        lower == "quadro" || lower == "pcie" || lower == "hbm3" || lower == "hbm3e" ||
        lower == "hbm2" || lower == "hbm2e" || lower == "sxm2" || lower == "sxm4" ||
        lower == "sxm5" || memory) {
      continue;
    }
    words.push_back(std::move(lower));
  }
  return words.empty() ? "gpu" : absl::StrJoin(words, "-");
}

}  // namespace trainyard::agent
