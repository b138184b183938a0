// A library with NVML's C interface whose GPUs come from the file that $FAKE_NVML_STATE names, read
// again at every call, so that a test changes them while a worker runs (replacing the file by
// rename). Without it there are the five GPUs of kDefaultState. Lines:
//
//   driver 570.86.10
//   gpu GPU-aaaa name=NVIDIA_H200 memory=161061273600 used=1024 temperature=41 ...
//   link GPU-aaaa GPU-cccc            joined by NVLink
//   instance MIG-aaaa GPU-aaaa name=NVIDIA_H200_MIG_1g.18gb memory=19327352832 gi=7 ci=0 ...
//   xid 3 GPU-aaaa 79                 the third error; each number is told once
//   xid 4 GPU-aaaa 13 7 0             the fourth, of GPU instance 7 and its compute instance 0
//
// Instances have the words of GPUs, and are lost with theirs. A card is divided (MIG) if its line
// has `mig=1`; with `mig=0` it could be, and with neither it cannot.
//
// Words of a gpu line: `lost` (answers GPU_IS_LOST), `silent` (answers UNKNOWN), `pids=7,4711`, and
// the numbers used, utilization, memory_utilization (percent), temperature, power, power_limit
// (milliwatts), clock, throttle, ecc, ecc_lifetime, remap_pending, remap_failed. What is not given
// is not supported. A GPU without a line is gone. Compiled with FAKE_NVML_IS_OLD it has only what
// the oldest supported driver has. Compiled with FAKE_NVML_LISTS_NO_INSTANCES it knows that cards
// are divided, and no more about that.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

constexpr char kDefaultState[] =
    "driver 570.86.10\n"
    "gpu GPU-aaaa name=NVIDIA_H200 memory=161061273600\n"
    "gpu GPU-bbbb name=NVIDIA_GeForce_GTX_1080_Ti memory=11811160064 pids=4711\n"
    "gpu GPU-cccc name=NVIDIA_H200 memory=161061273600\n"
    "gpu GPU-dddd name=NVIDIA_H200 memory=161061273600\n"
    "gpu GPU-eeee name=NVIDIA_H200 memory=161061273600\n"
    "link GPU-aaaa GPU-cccc\n"
    "link GPU-dddd GPU-eeee\n";

constexpr int kOk = 0, kInvalid = 2, kNotSupported = 3, kNotFound = 6, kInsufficient = 7,
              kTimeout = 10, kLost = 15, kUnknown = 999;

struct FakeGpu {
  std::string uuid;
  std::map<std::string, std::string> words;
};

struct FakeXid {
  int64_t number = 0;
  std::string uuid;
  uint64_t xid = 0;
  unsigned gpu_instance = ~0U, compute_instance = ~0U;
};

struct State {
  std::string driver;
  std::vector<FakeGpu> gpus;
  std::vector<FakeGpu> instances;  // of which `card` names the GPU
  std::set<std::pair<std::string, std::string>> links;
  std::vector<FakeXid> xids;
};

State Read() {
  std::stringstream text;
  const char* const path = std::getenv("FAKE_NVML_STATE");
  if (path != nullptr) {
    text << std::ifstream(path).rdbuf();
  } else {
    text << kDefaultState;
  }
  State state;
  std::string line;
  while (std::getline(text, line)) {
    std::istringstream words(line);
    std::string kind, first, second, word;
    words >> kind;
    if (kind == "driver") words >> state.driver;
    if (kind == "link" && words >> first >> second) {
      state.links.insert({first, second});
      state.links.insert({second, first});
    }
    FakeXid xid;
    if (kind == "xid" && words >> xid.number >> xid.uuid >> xid.xid) {
      if (!(words >> xid.gpu_instance >> xid.compute_instance)) {
        xid.gpu_instance = xid.compute_instance = ~0U;
      }
      state.xids.push_back(xid);
    }
    if (kind != "gpu" && kind != "instance") continue;
    FakeGpu gpu;
    words >> gpu.uuid;
    if (kind == "instance") words >> gpu.words["card"];
    while (words >> word) {
      const size_t equals = word.find('=');
      gpu.words[word.substr(0, equals)] =
          equals == std::string::npos ? "" : word.substr(equals + 1);
    }
    (kind == "gpu" ? state.gpus : state.instances).push_back(gpu);
  }
  return state;
}

// A handle is valid as long as the library: it points into a set that only grows.
using Handle = const std::string*;
std::set<std::string> handles;
// The highest error that was reported to this process.
int64_t told = 0;
std::set<std::string> registered;
int event_set = 0;

// The GPU or the instance with this name, or the reason why there is no answer.
int FindNamed(const State& state, const std::string& uuid, FakeGpu& found) {
  for (const std::vector<FakeGpu>* kind : {&state.gpus, &state.instances}) {
    for (const FakeGpu& gpu : *kind) {
      if (gpu.uuid != uuid) continue;
      if (gpu.words.contains("lost")) return kLost;
      if (gpu.words.contains("silent")) return kUnknown;
      found = gpu;
      if (kind == &state.gpus) return kOk;
      FakeGpu card;
      return FindNamed(state, gpu.words.at("card"), card);
    }
  }
  return kLost;
}

int Find(Handle device, FakeGpu& found) {
  return device == nullptr ? kLost : FindNamed(Read(), *device, found);
}

template <typename Number>
int Get(Handle device, const char* word, Number* number) {
  FakeGpu gpu;
  if (const int code = Find(device, gpu); code != kOk) return code;
  const auto value = gpu.words.find(word);
  if (value == gpu.words.end()) return kNotSupported;
  *number = static_cast<Number>(std::strtoull(value->second.c_str(), nullptr, 0));
  return kOk;
}

int Copy(const std::string& from, char* text, unsigned size) {
  if (from.size() >= size) return kInsufficient;
  std::memcpy(text, from.c_str(), from.size() + 1);
  return kOk;
}

}  // namespace

extern "C" {

struct Memory {
  uint64_t total, free, used;
};
struct Process {
  unsigned pid;
  uint64_t used_memory;
  unsigned gpu_instance, compute_instance;
};
struct Utilization {
  unsigned gpu, memory;
};
struct PciInfo {
  char legacy_bus_id[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};
struct Event {
  Handle device;
  uint64_t type, data;
  unsigned gpu_instance, compute_instance;
};

int nvmlInit_v2() {
  return kOk;
}
int nvmlShutdown() {
  return kOk;
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(Read().gpus.size());
  return kOk;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Handle* device) {
  const State state = Read();
  if (index >= state.gpus.size()) return kInvalid;
  *device = &*handles.insert(state.gpus[index].uuid).first;
  FakeGpu gpu;
  return Find(*device, gpu);
}
int nvmlDeviceGetHandleByUUID(const char* uuid, Handle* device) {
  const State state = Read();
  for (const std::vector<FakeGpu>* kind : {&state.gpus, &state.instances}) {
    for (const FakeGpu& gpu : *kind) {
      if (gpu.uuid != uuid) continue;
      *device = &*handles.insert(gpu.uuid).first;
      FakeGpu found;
      return Find(*device, found);
    }
  }
  return kNotFound;
}
int nvmlDeviceGetUUID(Handle device, char* text, unsigned size) {
  FakeGpu gpu;
  const int code = Find(device, gpu);
  return code == kOk ? Copy(gpu.uuid, text, size) : code;
}
int nvmlDeviceGetName(Handle device, char* text, unsigned size) {
  FakeGpu gpu;
  if (const int code = Find(device, gpu); code != kOk) return code;
  std::string name = gpu.words["name"];
  for (char& c : name) c = c == '_' ? ' ' : c;
  return Copy(name, text, size);
}
int nvmlDeviceGetMemoryInfo(Handle device, Memory* memory) {
  const int code = Get(device, "memory", &memory->total);
  if (code != kOk) return code;
  memory->used = 0;
  (void)Get(device, "used", &memory->used);
  memory->free = memory->total - memory->used;
  return kOk;
}

#ifndef FAKE_NVML_IS_OLD

int nvmlSystemGetDriverVersion(char* text, unsigned size) {
  return Copy(Read().driver, text, size);
}
int nvmlDeviceGetP2PStatus(Handle first, Handle second, int capability, int* status) {
  if (capability != 2) return kInvalid;
  *status = Read().links.contains({*first, *second}) ? 0 : 5;
  return kOk;
}
int nvmlDeviceGetComputeRunningProcesses_v3(Handle device, unsigned* count, Process* processes) {
  FakeGpu gpu;
  if (const int code = Find(device, gpu); code != kOk) return code;
  std::istringstream pids(gpu.words["pids"]);
  std::string pid;
  unsigned size = 0;
  while (size < *count && std::getline(pids, pid, ',')) {
    processes[size++] = {static_cast<unsigned>(std::atoi(pid.c_str())), 1 << 20, ~0U, ~0U};
  }
  *count = size;
  return kOk;
}
int nvmlDeviceGetPciInfo_v3(Handle device, PciInfo* info) {
  FakeGpu gpu;
  if (const int code = Find(device, gpu); code != kOk) return code;
  std::memset(info, 0, sizeof *info);
  if (gpu.words.contains("card")) return kInvalid;
  return Copy("00000000:" + gpu.uuid.substr(4, 2) + ":00.0", info->bus_id, sizeof info->bus_id);
}
int nvmlDeviceGetCudaComputeCapability(Handle device, int* major, int* minor) {
  FakeGpu gpu;
  if (const int code = Find(device, gpu); code != kOk) return code;
  const bool is_old = gpu.words["name"].find("1080") != std::string::npos;
  *major = is_old ? 6 : 9;
  *minor = is_old ? 1 : 0;
  return kOk;
}
int nvmlDeviceGetUtilizationRates(Handle device, Utilization* utilization) {
  const int code = Get(device, "utilization", &utilization->gpu);
  utilization->memory = 0;
  if (code == kOk) (void)Get(device, "memory_utilization", &utilization->memory);
  return code;
}
int nvmlDeviceGetTemperature(Handle device, int, unsigned* temperature) {
  return Get(device, "temperature", temperature);
}
int nvmlDeviceGetPowerUsage(Handle device, unsigned* power) {
  return Get(device, "power", power);
}
int nvmlDeviceGetEnforcedPowerLimit(Handle device, unsigned* limit) {
  return Get(device, "power_limit", limit);
}
int nvmlDeviceGetClockInfo(Handle device, int, unsigned* clock) {
  return Get(device, "clock", clock);
}
int nvmlDeviceGetCurrentClocksThrottleReasons(Handle device, uint64_t* reasons) {
  return Get(device, "throttle", reasons);
}
int nvmlDeviceGetEccMode(Handle device, int* current, int* pending) {
  uint64_t errors = 0;
  const int code = Get(device, "ecc", &errors);
  *current = *pending = 1;
  return code;
}
int nvmlDeviceGetTotalEccErrors(Handle device, int type, int counter, uint64_t* errors) {
  if (type != 1) return kNotSupported;
  return Get(device, counter == 0 ? "ecc" : "ecc_lifetime", errors);
}
int nvmlDeviceGetRemappedRows(Handle device, unsigned* corrected, unsigned* uncorrected,
                              unsigned* is_pending, unsigned* has_failed) {
  *corrected = *uncorrected = *has_failed = 0;
  const int code = Get(device, "remap_pending", is_pending);
  if (code == kOk) (void)Get(device, "remap_failed", has_failed);
  return code;
}
int nvmlDeviceGetRetiredPagesPendingStatus(Handle device, int* is_pending) {
  return Get(device, "retirement_pending", is_pending);
}
int nvmlDeviceGetMigMode(Handle device, unsigned* now, unsigned* after_reset) {
  const int code = Get(device, "mig", now);
  *after_reset = *now;
  return code;
}
#ifndef FAKE_NVML_LISTS_NO_INSTANCES
int nvmlDeviceGetMaxMigDeviceCount(Handle device, unsigned* count) {
  FakeGpu gpu;
  *count = 7;
  return Find(device, gpu);
}
int nvmlDeviceGetMigDeviceHandleByIndex(Handle device, unsigned index, Handle* instance) {
  unsigned at = 0;
  for (const FakeGpu& one : Read().instances) {
    if (one.words.at("card") != *device || at++ != index) continue;
    *instance = &*handles.insert(one.uuid).first;
    FakeGpu found;
    return Find(*instance, found);
  }
  return kNotFound;
}
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Handle instance, Handle* device) {
  FakeGpu found;
  if (const int code = Find(instance, found); code != kOk) return code;
  if (!found.words.contains("card")) return kInvalid;
  *device = &*handles.insert(found.words.at("card")).first;
  return kOk;
}
#endif
int nvmlDeviceGetGpuInstanceId(Handle instance, unsigned* id) {
  return Get(instance, "gi", id);
}
int nvmlDeviceGetComputeInstanceId(Handle instance, unsigned* id) {
  return Get(instance, "ci", id);
}
int nvmlEventSetCreate(void** set) {
  *set = &event_set;
  return kOk;
}
int nvmlEventSetFree(void*) {
  registered.clear();
  return kOk;
}
int nvmlDeviceRegisterEvents(Handle device, uint64_t types, void* set) {
  // Events are those of a card.
  FakeGpu gpu;
  if (Find(device, gpu) == kOk && gpu.words.contains("card")) return kInvalid;
  if (types != 8 || set != &event_set) return kInvalid;
  registered.insert(*device);
  return kOk;
}
int nvmlEventSetWait_v2(void* set, Event* event, unsigned) {
  if (set != &event_set) return kInvalid;
  for (const FakeXid& xid : Read().xids) {
    if (xid.number <= told) continue;
    told = xid.number;
    if (!registered.contains(xid.uuid)) continue;
    *event = {&*handles.insert(xid.uuid).first, 8, xid.xid, xid.gpu_instance, xid.compute_instance};
    return kOk;
  }
  return kTimeout;
}

#endif  // FAKE_NVML_IS_OLD
}
