// Opens NVIDIA's library when it is there, and never needs it to build or to run.
#include "worker/agent/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "worker/agent/gpu_facts.h"
#include "worker/agent/nvml_functions.h"

namespace trainyard::agent {
namespace {

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
constexpr char kInstancePrefix[] = "MIG-";

absl::Status Check(NvmlReturn code, absl::string_view what) {
  if (code == kNvmlSuccess) return absl::OkStatus();
  const std::string text = absl::StrCat("NVML: ", what, " failed with code ", code);
  if (code == kNvmlNotFound) return absl::NotFoundError(text);
  if (code == kNvmlGpuIsLost) return absl::DataLossError(text);
  return absl::UnavailableError(text);
}

}  // namespace

Nvml::Nvml(void* library, std::unique_ptr<NvmlFunctions> functions)
    : library_(library), functions_(std::move(functions)) {
  const NvmlFunctions& f = *functions_;
  if (f.event_set_create == nullptr || f.event_set_free == nullptr || f.event_wait == nullptr ||
      f.event_register == nullptr || f.event_set_create(&events_) != kNvmlSuccess) {
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
  auto functions = std::make_unique<NvmlFunctions>();
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

absl::StatusOr<Gpu> Nvml::Describe(void* device, void* card) const {
  const NvmlFunctions& f = *functions_;
  auto* const handle = static_cast<NvmlDevice>(device);
  auto* const card_handle = static_cast<NvmlDevice>(card);
  std::array<char, kUuidBytes> uuid{};
  std::array<char, kNameBytes> name{};
  NvmlMemory memory{};
  TY_RETURN_IF_ERROR(Check(f.uuid(handle, uuid.data(), kUuidBytes - 1), "GetUUID"));
  TY_RETURN_IF_ERROR(Check(f.name(handle, name.data(), kNameBytes - 1), "GetName"));
  TY_RETURN_IF_ERROR(Check(f.memory(handle, &memory), "GetMemoryInfo"));
  Gpu gpu{uuid.data(), name.data(), static_cast<int64_t>(memory.total)};
  NvmlPciInfo pci{};
  if (f.pci != nullptr && f.pci(card_handle, &pci) == kNvmlSuccess) {
    gpu.pci_bus_id.assign(pci.bus_id, std::find(pci.bus_id, std::end(pci.bus_id), '\0'));
  }
  int major = 0, minor = 0;
  if (f.capability != nullptr && f.capability(card_handle, &major, &minor) == kNvmlSuccess) {
    gpu.compute_capability = absl::StrCat(major, ".", minor);
  }
  return gpu;
}

bool Nvml::IsDivided(void* card) const {
  unsigned now = 0, after_reset = 0;
  return functions_->mig_mode != nullptr &&
         functions_->mig_mode(static_cast<NvmlDevice>(card), &now, &after_reset) == kNvmlSuccess &&
         now != 0;
}

absl::StatusOr<std::vector<Gpu>> Nvml::ListInstances(void* card) const {
  const NvmlFunctions& f = *functions_;
  auto* const handle = static_cast<NvmlDevice>(card);
  if (f.instances_max == nullptr || f.instance == nullptr || f.gpu_instance == nullptr) {
    return absl::UnimplementedError(
        "it is divided into instances (MIG), and its driver is too old to list them");
  }
  unsigned max = 0;
  TY_RETURN_IF_ERROR(Check(f.instances_max(handle, &max), "GetMaxMigDeviceCount"));
  std::vector<Gpu> gpus;
  std::vector<unsigned> parts;  // the part of the card's memory that each has
  for (unsigned i = 0; i < max; ++i) {
    NvmlDevice instance = nullptr;
    const NvmlReturn found = f.instance(handle, i, &instance);
    if (found == kNvmlNotFound) continue;  // there may be fewer than the largest number
    unsigned part = 0;
    absl::Status status = Check(found, "GetMigDeviceHandleByIndex");
    if (status.ok()) status = Check(f.gpu_instance(instance, &part), "GetGpuInstanceId");
    absl::StatusOr<Gpu> gpu = status.ok() ? Describe(instance, card) : status;
    if (!gpu.ok()) {
      LogWarning("an instance of a GPU does not answer and is not offered",
                 {{"index", absl::StrCat(i)}, {"error", std::string(gpu.status().message())}});
      continue;
    }
    parts.push_back(part);
    gpus.push_back(*std::move(gpu));
  }
  if (gpus.empty()) {
    return absl::FailedPreconditionError(
        "it is divided into instances (MIG), but has none; create some with nvidia-smi mig -cgi, "
        "or "
        "turn the mode off with nvidia-smi -mig 0, and start the worker again");
  }
  // Compute instances of one GPU instance share its memory, and each of them reports all of it.
  for (size_t i = 0; i < gpus.size(); ++i) {
    gpus[i].memory_bytes /= std::count(parts.begin(), parts.end(), parts[i]);
  }
  return gpus;
}

absl::StatusOr<std::vector<Gpu>> Nvml::Offered(void* card, bool is_divided) const {
  if (is_divided) return ListInstances(card);
  TY_ASSIGN_OR_RETURN(Gpu whole, Describe(card, card));
  return std::vector<Gpu>{std::move(whole)};
}

absl::StatusOr<std::vector<Gpu>> Nvml::ListGpus() {
  const NvmlFunctions& f = *functions_;
  unsigned count = 0;
  TY_RETURN_IF_ERROR(Check(f.count(&count), "nvmlDeviceGetCount_v2"));
  std::vector<Gpu> gpus;
  std::vector<NvmlDevice> handles;  // null for an instance, which has no link
  for (unsigned i = 0; i < count; ++i) {
    NvmlDevice card = nullptr;
    absl::Status found = Check(f.by_index(i, &card), "nvmlDeviceGetHandleByIndex_v2");
    const bool is_divided = found.ok() && IsDivided(card);
    const absl::StatusOr<std::vector<Gpu>> offered =
        found.ok() ? Offered(card, is_divided) : std::move(found);
    if (!offered.ok()) {
      LogWarning(is_divided ? "a GPU is not offered" : "a GPU does not answer and is not offered",
                 {{"index", absl::StrCat(i)}, {"error", std::string(offered.status().message())}});
      continue;
    }
    for (const Gpu& gpu : *offered) {
      Watch(gpu.uuid);
      gpus.push_back(gpu);
      handles.push_back(is_divided ? nullptr : card);
    }
  }
  const std::vector<int> islands =
      NumberIslands(static_cast<int>(gpus.size()), [&](int first, int second) {
        NvmlDevice const one = handles[static_cast<size_t>(first)];
        NvmlDevice const other = handles[static_cast<size_t>(second)];
        int p2p = -1;
        return f.p2p != nullptr && one != nullptr && other != nullptr &&
               f.p2p(one, other, kP2pOverNvlink, &p2p) == kNvmlSuccess && p2p == kP2pOk;
      });
  for (size_t i = 0; i < gpus.size(); ++i) gpus[i].island = islands[i];
  return gpus;
}

absl::Status Nvml::Find(const std::string& uuid, void** device, void** card) const {
  const NvmlFunctions& f = *functions_;
  NvmlDevice found = nullptr;
  TY_RETURN_IF_ERROR(Check(f.by_uuid(uuid.c_str(), &found), "GetHandleByUUID"));
  NvmlDevice parent = found;
  if (absl::StartsWith(uuid, kInstancePrefix)) {
    if (f.card_of == nullptr) {
      return absl::UnavailableError("NVML: the driver is too old to tell the GPU of an instance");
    }
    TY_RETURN_IF_ERROR(Check(f.card_of(found, &parent), "GetDeviceHandleFromMigDeviceHandle"));
  }
  *device = found;
  *card = parent;
  return absl::OkStatus();
}

void Nvml::Watch(const std::string& uuid) {
  const NvmlFunctions& f = *functions_;
  void* device = nullptr;
  void* card = nullptr;
  if (events_ == nullptr || !Find(uuid, &device, &card).ok()) return;
  std::vector<Watched>& all = watched_[card];
  // The events of a card come with its first instance, and again after it was away.
  const bool has_neighbours_only =
      !all.empty() && std::none_of(all.begin(), all.end(),
                                   [&uuid](const Watched& before) { return before.uuid == uuid; });
  if (!has_neighbours_only &&
      f.event_register(static_cast<NvmlDevice>(card), kXidEvents, events_) != kNvmlSuccess) {
    return;
  }
  Watched watched = {.uuid = uuid};
  auto* const handle = static_cast<NvmlDevice>(device);
  if (device != card && (f.gpu_instance == nullptr || f.compute_instance == nullptr ||
                         f.gpu_instance(handle, &watched.gpu_instance) != kNvmlSuccess ||
                         f.compute_instance(handle, &watched.compute_instance) != kNvmlSuccess)) {
    watched.gpu_instance = watched.compute_instance = kNoInstance;
  }
  std::erase_if(all, [&uuid](const Watched& before) { return before.uuid == uuid; });
  all.push_back(watched);
}

std::vector<XidEvent> Nvml::TakeXids() {
  std::vector<XidEvent> events;
  NvmlEvent event{};
  // An event that names no instance concerns all of them.
  const auto concerns = [](unsigned named, unsigned mine) {
    return named == kNoInstance || mine == kNoInstance || named == mine;
  };
  for (int i = 0; i < kXidsMax && events_ != nullptr; ++i) {
    if (functions_->event_wait(events_, &event, /*timeout_ms=*/0) != kNvmlSuccess) break;
    const auto found = watched_.find(event.device);
    if (found == watched_.end() || (event.type & kXidEvents) == 0) continue;
    for (const Watched& watched : found->second) {
      if (concerns(event.gpu_instance, watched.gpu_instance) &&
          concerns(event.compute_instance, watched.compute_instance)) {
        events.push_back({watched.uuid, static_cast<int64_t>(event.data)});
      }
    }
  }
  return events;
}

// Asks the functions of a device, and remembers whether one of them reports that the GPU is lost:
// all others would too.
class Nvml::Asker {
 public:
  template <typename Function, typename... Arguments>
  bool Ask(Function* function, Arguments... arguments) {
    const NvmlReturn code = function == nullptr ? kNvmlNotFound : function(arguments...);
    if (code == kNvmlGpuIsLost) lost_ = Check(code, "reading the GPU");
    return code == kNvmlSuccess;
  }
  const absl::Status& lost() const { return lost_; }
  void Take(NvmlReturn code) {
    if (code == kNvmlGpuIsLost) lost_ = Check(code, "reading the GPU");
  }

 private:
  absl::Status lost_;
};

void Nvml::ReadUse(void* device, Asker& asker, GpuReading& reading) const {
  const NvmlFunctions& f = *functions_;
  auto* const handle = static_cast<NvmlDevice>(device);
  NvmlMemory memory{};
  if (asker.Ask(f.memory, handle, &memory)) {
    reading.memory_used_bytes = static_cast<int64_t>(memory.used);
    reading.memory_free_bytes = static_cast<int64_t>(memory.free);
  }
  NvmlUtilization utilization{};
  if (asker.Ask(f.utilization, handle, &utilization)) {
    reading.utilization = utilization.gpu / 100.0;
    reading.memory_utilization = utilization.memory / 100.0;
  }
  unsigned number = 0;
  if (asker.Ask(f.power, handle, &number)) reading.power_watts = number / 1000.0;
  if (asker.Ask(f.power_limit, handle, &number)) reading.power_limit_watts = number / 1000.0;
  std::vector<NvmlProcess> processes(kProcessesMax);
  number = kProcessesMax;
  const NvmlReturn code =
      f.processes == nullptr ? kNvmlNotFound : f.processes(handle, &number, processes.data());
  asker.Take(code);
  // There are more processes than fit. Those that did fit show that the device is in use.
  if (code == kNvmlInsufficientSize) number = kProcessesMax;
  if (code != kNvmlSuccess && code != kNvmlInsufficientSize) return;
  reading.processes.emplace();
  for (unsigned i = 0; i < std::min(number, kProcessesMax); ++i) {
    reading.processes->push_back(processes[i].pid);
  }
}

void Nvml::ReadHealth(void* card, Asker& asker, GpuReading& reading) const {
  const NvmlFunctions& f = *functions_;
  auto* const handle = static_cast<NvmlDevice>(card);
  unsigned number = 0;
  if (asker.Ask(f.temperature, handle, kChipSensor, &number)) reading.temperature_celsius = number;
  if (asker.Ask(f.clock, handle, kSmClock, &number)) reading.sm_clock_mhz = number;
  if (asker.Ask(f.clock, handle, kMemoryClock, &number)) reading.memory_clock_mhz = number;
  uint64_t large = 0;
  if (asker.Ask(f.throttle, handle, &large)) reading.throttle_reasons = large;
  int mode = 0, pending = 0;
  if (asker.Ask(f.ecc_mode, handle, &mode, &pending)) reading.ecc_enabled = mode != 0;
  if (asker.Ask(f.ecc_errors, handle, kUncorrected, kVolatile, &large)) {
    reading.uncorrected_ecc_errors = static_cast<int64_t>(large);
  }
  if (asker.Ask(f.ecc_errors, handle, kUncorrected, kAggregate, &large)) {
    reading.lifetime_ecc_errors = static_cast<int64_t>(large);
  }
  unsigned corrected = 0, uncorrected = 0, is_pending = 0, has_failed = 0;
  if (asker.Ask(f.remapped, handle, &corrected, &uncorrected, &is_pending, &has_failed)) {
    reading.is_remap_pending = is_pending != 0;
    reading.has_remap_failed = has_failed != 0;
  }
  if (asker.Ask(f.retirement, handle, &pending)) reading.is_retirement_pending = pending != 0;
}

absl::StatusOr<GpuReading> Nvml::Read(const std::string& uuid) {
  void* device = nullptr;
  void* card = nullptr;
  TY_RETURN_IF_ERROR(Find(uuid, &device, &card));
  GpuReading reading;
  Asker asker;
  ReadUse(device, asker, reading);
  ReadHealth(card, asker, reading);
  TY_RETURN_IF_ERROR(asker.lost());
  return reading;
}

std::string Nvml::DriverVersion() {
  std::array<char, kVersionBytes> text{};
  if (functions_->driver_version == nullptr ||
      functions_->driver_version(text.data(), kVersionBytes - 1) != kNvmlSuccess) {
    return "";
  }
  return text.data();
}

}  // namespace trainyard::agent
