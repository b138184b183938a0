// Looks for devices once, when the worker starts.
#include "worker/agent/host_devices.h"

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/memory_limit.h"
#include "common/base/status_macros.h"
#include "worker/agent/device_inventory.h"

namespace trainyard::agent {
namespace {

// Logs what is known of a GPU before anything goes wrong with it.
void LogGpu(const Gpu& gpu, const absl::StatusOr<GpuReading>& reading) {
  std::string errors = "unknown";
  if (reading.ok() && reading->lifetime_ecc_errors.has_value()) {
    errors = absl::StrCat(*reading->lifetime_ecc_errors);
  }
  const bool has_ecc = reading.ok() && reading->ecc_enabled.value_or(false);
  LogInfo("a GPU is here", {{"device", gpu.uuid},
                            {"product", gpu.product},
                            {"bus", gpu.pci_bus_id},
                            {"compute_capability", gpu.compute_capability},
                            {"island", absl::StrCat(gpu.island)},
                            {"ecc", has_ecc ? "on" : "off"},
                            {"uncorrected_errors_ever", errors}});
}

// Returns true if the CPU backend computes in bf16 on this host.
bool CpuHasBf16() {
  return __builtin_cpu_supports("avx512bf16") != 0;
}

}  // namespace

absl::StatusOr<std::vector<Device>> FindDevices(const WorkerFlags& flags, Nvml* nvml) {
  std::vector<Device> devices;
  if (nvml != nullptr) {
    TY_ASSIGN_OR_RETURN(const std::vector<Gpu> gpus, nvml->ListGpus());
    devices = GpuDevices(gpus);
    for (size_t i = 0; i < gpus.size(); ++i) devices[i].near_cpus = CpusNear(gpus[i].pci_bus_id);
    for (const Gpu& gpu : gpus) LogGpu(gpu, nvml->Read(gpu.uuid));
  }
  TY_ASSIGN_OR_RETURN(const HostResources host, MakeHost(AllowedCpus(), AllowedProcessors(),
                                                         AllowedMemory(), flags.reserved));
  CpuDeviceOptions options = flags.cpu;
  TY_RETURN_IF_ERROR(ReadCpuDevices(flags.cpu_devices, options));
  TY_ASSIGN_OR_RETURN(std::vector<Device> cpus,
                      DivideCpus(host.processors, host.memory_bytes, options));
  for (Device& device : cpus) device.bf16 = CpuHasBf16();
  devices.insert(devices.end(), cpus.begin(), cpus.end());
  return devices;
}

absl::StatusOr<HostResources> FindHost(const WorkerFlags& flags,
                                       const std::vector<Device>& devices) {
  TY_ASSIGN_OR_RETURN(HostResources host, MakeHost(AllowedCpus(), AllowedProcessors(),
                                                   AllowedMemory(), flags.reserved));
  CoverDevices(devices, host);
  return host;
}

}  // namespace trainyard::agent
