// Looks up NVML's functions by name.
#include "worker/agent/nvml_functions.h"

#include <dlfcn.h>

#include <type_traits>

namespace trainyard::agent {

std::vector<std::string> NvmlFunctions::Load(void* library) {
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
  find(mig_mode, "nvmlDeviceGetMigMode");
  find(instances_max, "nvmlDeviceGetMaxMigDeviceCount");
  find(instance, "nvmlDeviceGetMigDeviceHandleByIndex");
  find(card_of, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle");
  find(gpu_instance, "nvmlDeviceGetGpuInstanceId");
  find(compute_instance, "nvmlDeviceGetComputeInstanceId");
  find(event_set_create, "nvmlEventSetCreate");
  find(event_set_free, "nvmlEventSetFree");
  find(event_register, "nvmlDeviceRegisterEvents");
  find(event_wait, "nvmlEventSetWait_v2");
  return missing;
}

}  // namespace trainyard::agent
