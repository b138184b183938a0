// A library with NVML's C interface and five GPUs; process 4711 computes on the second. NVLink
// joins the first to the third and the fourth to the fifth.
#include <cstdint>
#include <cstring>

extern "C" {

struct Memory {
  uint64_t total, free, used;
};
struct Process {
  unsigned pid;
  uint64_t used_memory;
  unsigned gpu_instance, compute_instance;
};

constexpr unsigned kDevices = 5;
constexpr char kUuids[kDevices][9] = {"GPU-aaaa", "GPU-bbbb", "GPU-cccc", "GPU-dddd", "GPU-eeee"};
static int devices[kDevices];

int nvmlInit_v2() {
  return 0;
}
int nvmlShutdown() {
  return 0;
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = kDevices;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, int** device) {
  if (index >= kDevices) return 2;
  *device = &devices[index];
  return 0;
}
int nvmlDeviceGetUUID(int* device, char* text, unsigned size) {
  std::strncpy(text, kUuids[device - devices], size);
  return 0;
}
int nvmlDeviceGetHandleByUUID(const char* uuid, int** device) {
  for (unsigned i = 0; i < kDevices; ++i) {
    if (std::strcmp(uuid, kUuids[i]) != 0) continue;
    *device = &devices[i];
    return 0;
  }
  return 6;
}
int nvmlDeviceGetName(int* device, char* text, unsigned size) {
  std::strncpy(text, device == &devices[1] ? "NVIDIA GeForce GTX 1080 Ti" : "NVIDIA H200", size);
  return 0;
}
int nvmlDeviceGetMemoryInfo(int* device, Memory* memory) {
  memory->total = device == &devices[1] ? 11ull << 30 : 150ull << 30;
  return 0;
}
int nvmlDeviceGetP2PStatus(int* first, int* second, int capability, int* status) {
  if (capability != 2) return 2;
  const long low = (first < second ? first : second) - devices;
  const long high = (first < second ? second : first) - devices;
  const bool linked = (low == 0 && high == 2) || (low == 3 && high == 4);
  *status = linked ? 0 : 5;
  return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(int* device, unsigned* count, Process* processes) {
  *count = 0;
  if (device == &devices[1]) {
    processes[0].pid = 4711;
    *count = 1;
  }
  return 0;
}
}
