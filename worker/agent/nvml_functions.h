// Declares the part of NVML's C interface that the worker uses, because NVIDIA's header comes with
// CUDA, and finds its functions in the library.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trainyard::agent {

// Names in comments are those of NVML's API reference (docs.nvidia.com/deploy/nvml-api).
using NvmlReturn = int;
using NvmlDevice = struct NvmlDeviceHandle*;
using NvmlEventSet = void*;
inline constexpr NvmlReturn kNvmlSuccess = 0;
inline constexpr NvmlReturn kNvmlNotFound = 6;
inline constexpr NvmlReturn kNvmlInsufficientSize = 7;
inline constexpr NvmlReturn kNvmlGpuIsLost = 15;

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

// The functions of the library. A driver may be too old for some; these are null, and what they
// tell is then unknown.
struct NvmlFunctions {
  NvmlReturn (*init)() = nullptr;
  NvmlReturn (*shutdown)() = nullptr;
  NvmlReturn (*count)(unsigned*) = nullptr;
  NvmlReturn (*by_index)(unsigned, NvmlDevice*) = nullptr;
  NvmlReturn (*by_uuid)(const char*, NvmlDevice*) = nullptr;
  NvmlReturn (*uuid)(NvmlDevice, char*, unsigned) = nullptr;
  NvmlReturn (*name)(NvmlDevice, char*, unsigned) = nullptr;
  NvmlReturn (*memory)(NvmlDevice, NvmlMemory*) = nullptr;
  NvmlReturn (*processes)(NvmlDevice, unsigned*, NvmlProcess*) = nullptr;
  NvmlReturn (*p2p)(NvmlDevice, NvmlDevice, int, int*) = nullptr;
  NvmlReturn (*driver_version)(char*, unsigned) = nullptr;
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
  // These concern cards that are divided into instances (MIG), each of which is a device.
  NvmlReturn (*mig_mode)(NvmlDevice, unsigned* now, unsigned* after_reset) = nullptr;
  NvmlReturn (*instances_max)(NvmlDevice, unsigned*) = nullptr;
  NvmlReturn (*instance)(NvmlDevice, unsigned index, NvmlDevice*) = nullptr;
  NvmlReturn (*card_of)(NvmlDevice instance, NvmlDevice*) = nullptr;
  NvmlReturn (*gpu_instance)(NvmlDevice instance, unsigned*) = nullptr;
  NvmlReturn (*compute_instance)(NvmlDevice instance, unsigned*) = nullptr;
  NvmlReturn (*event_set_create)(NvmlEventSet*) = nullptr;
  NvmlReturn (*event_set_free)(NvmlEventSet) = nullptr;
  NvmlReturn (*event_register)(NvmlDevice, uint64_t, NvmlEventSet) = nullptr;
  NvmlReturn (*event_wait)(NvmlEventSet, NvmlEvent*, unsigned) = nullptr;

  // Returns the names of indispensable functions that the library lacks.
  std::vector<std::string> Load(void* library);
};

}  // namespace trainyard::agent
