// A library with NVML's C interface and two GPUs; process 4711 computes on the second.
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

static int devices[2];

int nvmlInit_v2() {
  return 0;
}
int nvmlShutdown() {
  return 0;
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 2;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, int** device) {
  if (index > 1) return 2;
  *device = &devices[index];
  return 0;
}
int nvmlDeviceGetUUID(int* device, char* text, unsigned size) {
  std::strncpy(text, device == &devices[0] ? "GPU-aaaa" : "GPU-bbbb", size);
  return 0;
}
int nvmlDeviceGetHandleByUUID(const char* uuid, int** device) {
  if (std::strcmp(uuid, "GPU-aaaa") == 0) {
    *device = &devices[0];
  } else if (std::strcmp(uuid, "GPU-bbbb") == 0) {
    *device = &devices[1];
  } else {
    return 6;
  }
  return 0;
}
int nvmlDeviceGetName(int* device, char* text, unsigned size) {
  std::strncpy(text, device == &devices[0] ? "NVIDIA H200" : "NVIDIA GeForce GTX 1080 Ti", size);
  return 0;
}
int nvmlDeviceGetMemoryInfo(int* device, Memory* memory) {
  memory->total = device == &devices[0] ? 150ull << 30 : 11ull << 30;
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
