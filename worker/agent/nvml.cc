// Opens NVIDIA's library when it is there, and never needs it to build or to run.
#include "worker/agent/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "worker/agent/gpu_facts.h"

namespace trainyard::agent {
namespace {

// These declare the part of NVML's C interface that is used, because its header comes with CUDA.
// Names in comments are those of NVML's API reference (docs.nvidia.com/deploy/nvml-api).
using NvmlReturn = int;
using NvmlDevice = struct NvmlDeviceHandle*;
using NvmlEventSet = void*;
using Text = char*;
constexpr NvmlReturn kSuccess = 0;
constexpr NvmlReturn kNotFound = 6;
constexpr NvmlReturn kInsufficientSize = 7;
constexpr NvmlReturn kGpuIsLost = 15;
// These are nvmlGpuP2PCapsIndex_t and nvmlGpuP2PStatus_t. An NVSwitch counts as links between all
// its GPUs.
constexpr int kP2pOverNvlink = 2;
constexpr int kP2pOk = 0;
constexpr unsigned kUuidBytes = 96;
constexpr unsigned kNameBytes = 96;
constexpr unsigned kVersionBytes = 80;
constexpr unsigned kProcessesMax = 1024;
constexpr int kUncorrected = 1;                // nvmlMemoryErrorType_t
constexpr int kVolatile = 0, kAggregate = 1;   // nvmlEccCounterType_t
constexpr int kSmClock = 1, kMemoryClock = 2;  // nvmlClockType_t
constexpr int kChipSensor = 0;                 // nvmlTemperatureSensors_t
constexpr uint64_t kXidEvents = 8;             // nvmlEventTypeXidCriticalError

struct NvmlMemory {
  uint64_t total;
  uint64_t free;
  uint64_t used;
};

// This is nvmlProcessInfo_t as nvmlDeviceGetComputeRunningProcesses_v2 and _v3 use it.
struct NvmlProcess {
  unsigned pid;
  uint64_t used_memory;
  unsigned gpu_instance;
  unsigned compute_instance;
};

struct NvmlUtilization {  // in percent
  unsigned gpu;
  unsigned memory;
};

struct NvmlPciInfo {
  char legacy_bus_id[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};

struct NvmlEvent {
  NvmlDevice device;
  uint64_t type;
  uint64_t data;
  unsigned gpu_instance;
  unsigned compute_instance;
};

absl::Status Check(NvmlReturn code, absl::string_view what) {
  if (code == kSuccess) return absl::OkStatus();
  const std::string text = absl::StrCat("NVML: ", what, " failed with code ", code);
  if (code == kNotFound) return absl::NotFoundError(text);
  if (code == kGpuIsLost) return absl::DataLossError(text);
  return absl::UnavailableError(text);
}

}  // namespace

struct Nvml::Functions {
  NvmlReturn (*init)() = nullptr;
  NvmlReturn (*shutdown)() = nullptr;
  NvmlReturn (*count)(unsigned*) = nullptr;
  NvmlReturn (*by_index)(unsigned, NvmlDevice*) = nullptr;
  NvmlReturn (*by_uuid)(const char*, NvmlDevice*) = nullptr;
  NvmlReturn (*uuid)(NvmlDevice, Text, unsigned) = nullptr;
  NvmlReturn (*name)(NvmlDevice, Text, unsigned) = nullptr;
  NvmlReturn (*memory)(NvmlDevice, NvmlMemory*) = nullptr;
  // This is null if the driver is too old for it, and the value is then unknown.
  NvmlReturn (*processes)(NvmlDevice, unsigned*, NvmlProcess*) = nullptr;
  NvmlReturn (*p2p)(NvmlDevice, NvmlDevice, int, int*) = nullptr;
  NvmlReturn (*driver_version)(Text, unsigned) = nullptr;
  NvmlReturn (*pci)(NvmlDevice, NvmlPciInfo*) = nullptr;
  NvmlReturn (*capability)(NvmlDevice, int*, int*) = nullptr;
  NvmlReturn (*utilization)(NvmlDevice, NvmlUtilization*) = nullptr;
  NvmlReturn (*temperature)(NvmlDevice, int, unsigned*) = nullptr;
  NvmlReturn (*power)(NvmlDevice, unsigned*) = nullptr;        // in milliwatts
  NvmlReturn (*power_limit)(NvmlDevice, unsigned*) = nullptr;  // in milliwatts
  NvmlReturn (*clock)(NvmlDevice, int, unsigned*) = nullptr;
  NvmlReturn (*throttle)(NvmlDevice, uint64_t*) = nullptr;
  NvmlReturn (*ecc_mode)(NvmlDevice, int*, int*) = nullptr;
  NvmlReturn (*ecc_errors)(NvmlDevice, int, int, uint64_t*) = nullptr;
  NvmlReturn (*remapped)(NvmlDevice, unsigned*, unsigned*, unsigned*, unsigned*) = nullptr;
  NvmlReturn (*retirement)(NvmlDevice, int*) = nullptr;
  NvmlReturn (*event_set_create)(NvmlEventSet*) = nullptr;
  NvmlReturn (*event_set_free)(NvmlEventSet) = nullptr;
  NvmlReturn (*event_register)(NvmlDevice, uint64_t, NvmlEventSet) = nullptr;
  NvmlReturn (*event_wait)(NvmlEventSet, NvmlEvent*, unsigned) = nullptr;

  // Returns the name of an indispensable function that the library lacks.
  std::vector<std::string> Load(void* library);
};

std::vector<std::string> Nvml::Functions::Load(void* library) {
  std::vector<std::string> missing;
  const auto find = [library](auto& function, const char* symbol) {
    if (function == nullptr) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, symbol));
    }
    return function != nullptr;
  };
  const auto need = [&](auto& function, const char* symbol) {
    if (!find(function, symbol)) missing.push_back(symbol);
  };
  need(init, "nvmlInit_v2");
  need(shutdown, "nvmlShutdown");
  need(count, "nvmlDeviceGetCount_v2");
  need(by_index, "nvmlDeviceGetHandleByIndex_v2");
  need(by_uuid, "nvmlDeviceGetHandleByUUID");
  need(uuid, "nvmlDeviceGetUUID");
  need(name, "nvmlDeviceGetName");
  need(memory, "nvmlDeviceGetMemoryInfo");
  (void)(find(processes, "nvmlDeviceGetComputeRunningProcesses_v3") ||
         find(processes, "nvmlDeviceGetComputeRunningProcesses_v2"));
  find(p2p, "nvmlDeviceGetP2PStatus");
  find(driver_version, "nvmlSystemGetDriverVersion");
  find(pci, "nvmlDeviceGetPciInfo_v3");
  find(capability, "nvmlDeviceGetCudaComputeCapability");
  find(utilization, "nvmlDeviceGetUtilizationRates");
  find(temperature, "nvmlDeviceGetTemperature");
  find(power, "nvmlDeviceGetPowerUsage");
  find(power_limit, "nvmlDeviceGetEnforcedPowerLimit");
  find(clock, "nvmlDeviceGetClockInfo");
  (void)(find(throttle, "nvmlDeviceGetCurrentClocksEventReasons") ||
         find(throttle, "nvmlDeviceGetCurrentClocksThrottleReasons"));
  find(ecc_mode, "nvmlDeviceGetEccMode");
  find(ecc_errors, "nvmlDeviceGetTotalEccErrors");
  find(remapped, "nvmlDeviceGetRemappedRows");
  find(retirement, "nvmlDeviceGetRetiredPagesPendingStatus");
  find(event_set_create, "nvmlEventSetCreate");
  find(event_set_free, "nvmlEventSetFree");
  find(event_register, "nvmlDeviceRegisterEvents");
  find(event_wait, "nvmlEventSetWait_v2");
  return missing;
}

Nvml::Nvml(void* library, std::unique_ptr<Functions> functions)
    : library_(library), functions_(std::move(functions)) {
  const Functions& f = *functions_;
  if (f.event_set_create == nullptr || f.event_set_free == nullptr || f.event_wait == nullptr ||
      f.event_register == nullptr || f.event_set_create(&events_) != kSuccess) {
    events_ = nullptr;
  }
}

Nvml::~Nvml() {
  if (events_ != nullptr) (void)functions_->event_set_free(events_);
  (void)functions_->shutdown();
  dlclose(library_);
}

absl::StatusOr<std::unique_ptr<Nvml>> Nvml::Open(const std::string& library) {
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return absl::NotFoundError(absl::StrCat("'", library, "' cannot be loaded: ", dlerror()));
  }
  auto functions = std::make_unique<Functions>();
  const std::vector<std::string> missing = functions->Load(handle);
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
  const Functions& f = *functions_;
  unsigned count = 0;
  TY_RETURN_IF_ERROR(Check(f.count(&count), "nvmlDeviceGetCount_v2"));
  std::vector<Gpu> gpus;
  std::vector<NvmlDevice> handles;
  for (unsigned i = 0; i < count; ++i) {
    NvmlDevice device = nullptr;
    std::array<char, kUuidBytes> uuid{};
    std::array<char, kNameBytes> name{};
    NvmlMemory memory{};
    absl::Status status = Check(f.by_index(i, &device), "nvmlDeviceGetHandleByIndex_v2");
    if (status.ok()) status = Check(f.uuid(device, uuid.data(), kUuidBytes - 1), "GetUUID");
    if (status.ok()) status = Check(f.name(device, name.data(), kNameBytes - 1), "GetName");
    if (status.ok()) status = Check(f.memory(device, &memory), "GetMemoryInfo");
    if (!status.ok()) {
      LogWarning("a GPU does not answer and is not offered",
                 {{"index", absl::StrCat(i)}, {"error", std::string(status.message())}});
      continue;
    }
    Gpu gpu{uuid.data(), name.data(), static_cast<int64_t>(memory.total)};
    NvmlPciInfo pci{};
    if (f.pci != nullptr && f.pci(device, &pci) == kSuccess) {
      gpu.pci_bus_id.assign(pci.bus_id, std::find(pci.bus_id, std::end(pci.bus_id), '\0'));
    }
    int major = 0, minor = 0;
    if (f.capability != nullptr && f.capability(device, &major, &minor) == kSuccess) {
      gpu.compute_capability = absl::StrCat(major, ".", minor);
    }
    Watch(gpu.uuid);
    gpus.push_back(std::move(gpu));
    handles.push_back(device);
  }
  const std::vector<int> islands =
      NumberIslands(static_cast<int>(gpus.size()), [&](int first, int second) {
        int p2p = -1;
        return f.p2p != nullptr &&
               f.p2p(handles[static_cast<size_t>(first)], handles[static_cast<size_t>(second)],
                     kP2pOverNvlink, &p2p) == kSuccess &&
               p2p == kP2pOk;
      });
  for (size_t i = 0; i < gpus.size(); ++i) gpus[i].island = islands[i];
  return gpus;
}

void Nvml::Watch(const std::string& uuid) {
  NvmlDevice device = nullptr;
  if (events_ == nullptr || functions_->by_uuid(uuid.c_str(), &device) != kSuccess) return;
  if (functions_->event_register(device, kXidEvents, events_) == kSuccess) watched_[device] = uuid;
}

std::vector<XidEvent> Nvml::TakeXids() {
  std::vector<XidEvent> events;
  NvmlEvent event{};
  for (int i = 0; i < kXidsMax && events_ != nullptr; ++i) {
    if (functions_->event_wait(events_, &event, /*timeout_ms=*/0) != kSuccess) break;
    const auto found = watched_.find(event.device);
    if (found == watched_.end() || (event.type & kXidEvents) == 0) continue;
    events.push_back({found->second, static_cast<int64_t>(event.data)});
  }
  return events;
}

absl::StatusOr<GpuReading> Nvml::Read(const std::string& uuid) {
  const Functions& f = *functions_;
  NvmlDevice device = nullptr;
  TY_RETURN_IF_ERROR(Check(f.by_uuid(uuid.c_str(), &device), "GetHandleByUUID"));
  GpuReading reading;
  // If one function reports that a GPU is lost, all others would too.
  absl::Status lost = absl::OkStatus();
  const auto ask = [&lost](auto* function, auto... arguments) {
    const NvmlReturn code = function == nullptr ? kNotFound : function(arguments...);
    if (code == kGpuIsLost) lost = Check(code, "reading the GPU");
    return code == kSuccess;
  };
  NvmlMemory memory{};
  if (ask(f.memory, device, &memory)) {
    reading.memory_used_bytes = static_cast<int64_t>(memory.used);
    reading.memory_free_bytes = static_cast<int64_t>(memory.free);
  }
  NvmlUtilization utilization{};
  if (ask(f.utilization, device, &utilization)) {
    reading.utilization = utilization.gpu / 100.0;
    reading.memory_utilization = utilization.memory / 100.0;
  }
  unsigned number = 0;
  if (ask(f.temperature, device, kChipSensor, &number)) reading.temperature_celsius = number;
  if (ask(f.power, device, &number)) reading.power_watts = number / 1000.0;
  if (ask(f.power_limit, device, &number)) reading.power_limit_watts = number / 1000.0;
  if (ask(f.clock, device, kSmClock, &number)) reading.sm_clock_mhz = number;
  if (ask(f.clock, device, kMemoryClock, &number)) reading.memory_clock_mhz = number;
  uint64_t large = 0;
  if (ask(f.throttle, device, &large)) reading.throttle_reasons = large;
  int mode = 0, pending = 0;
  if (ask(f.ecc_mode, device, &mode, &pending)) reading.ecc_enabled = mode != 0;
  if (ask(f.ecc_errors, device, kUncorrected, kVolatile, &large)) {
    reading.uncorrected_ecc_errors = static_cast<int64_t>(large);
  }
  if (ask(f.ecc_errors, device, kUncorrected, kAggregate, &large)) {
    reading.lifetime_ecc_errors = static_cast<int64_t>(large);
  }
  unsigned corrected = 0, uncorrected = 0, is_pending = 0, has_failed = 0;
  if (ask(f.remapped, device, &corrected, &uncorrected, &is_pending, &has_failed)) {
    reading.is_remap_pending = is_pending != 0;
    reading.has_remap_failed = has_failed != 0;
  }
  if (ask(f.retirement, device, &pending)) reading.is_retirement_pending = pending != 0;
  std::vector<NvmlProcess> processes(kProcessesMax);
  number = kProcessesMax;
  const NvmlReturn code =
      f.processes == nullptr ? kNotFound : f.processes(device, &number, processes.data());
  if (code == kGpuIsLost) lost = Check(code, "reading the GPU");
  // There are more processes than fit. Those that did fit show that the device is in use.
  if (code == kInsufficientSize) number = kProcessesMax;
  if (code == kSuccess || code == kInsufficientSize) {
    reading.processes.emplace();
    for (unsigned i = 0; i < std::min(number, kProcessesMax); ++i) {
      reading.processes->push_back(processes[i].pid);
    }
  }
  TY_RETURN_IF_ERROR(lost);
  return reading;
}

std::string Nvml::DriverVersion() {
  std::array<char, kVersionBytes> text{};
  if (functions_->driver_version == nullptr ||
      functions_->driver_version(text.data(), kVersionBytes - 1) != kSuccess) {
    return "";
  }
  return text.data();
}

}  // namespace trainyard::agent
