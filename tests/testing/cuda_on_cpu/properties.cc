// The properties of devices, of the driver and of the runtime itself.
#include <cstdio>

#include "tests/testing/cuda_on_cpu/limits.h"
#include "tests/testing/cuda_on_cpu/machine.h"

namespace trainyard::cuda_on_cpu {
namespace {

bool Exists(const Machine& machine, int device) {
  return device >= 0 && device < machine.device_count;
}

cudaDeviceProp Properties(const Machine& machine, int device) {
  cudaDeviceProp properties = {};
  std::snprintf(properties.name, sizeof(properties.name), "CUDA on CPU");
  std::snprintf(properties.uuid.bytes, sizeof(properties.uuid.bytes), "cuda-on-cpu");
  // Devices differ in their last byte.
  properties.uuid.bytes[15] = static_cast<char>(device);
  properties.major = 9;
  properties.minor = 0;
  properties.totalGlobalMem = static_cast<size_t>(machine.device_bytes);
  properties.sharedMemPerBlock = kSharedBytes;
  properties.sharedMemPerBlockOptin = kSharedBytesOptIn;
  properties.sharedMemPerMultiprocessor = kSharedBytesOfMultiprocessor;
  properties.reservedSharedMemPerBlock = kSharedBytesReserved;
  properties.regsPerBlock = kRegisters;
  properties.regsPerMultiprocessor = kRegisters;
  properties.warpSize = 32;
  properties.memPitch = 2147483647;
  properties.maxThreadsPerBlock = kMaxBlockThreads;
  properties.maxThreadsDim[0] = kMaxBlockX;
  properties.maxThreadsDim[1] = kMaxBlockY;
  properties.maxThreadsDim[2] = kMaxBlockZ;
  properties.maxGridSize[0] = kMaxGridX;
  properties.maxGridSize[1] = kMaxGridYZ;
  properties.maxGridSize[2] = kMaxGridYZ;
  properties.totalConstMem = 65536;
  properties.multiProcessorCount = kMultiprocessors;
  properties.maxThreadsPerMultiProcessor = kMaxMultiprocessorThreads;
  properties.maxBlocksPerMultiProcessor = kMaxMultiprocessorBlocks;
  properties.l2CacheSize = kCacheBytes;
  properties.memoryBusWidth = 5120;
  properties.canMapHostMemory = 1;
  properties.concurrentKernels = 1;
  properties.asyncEngineCount = 3;
  properties.unifiedAddressing = 1;
  properties.streamPrioritiesSupported = 1;
  properties.hostRegisterSupported = 1;
  properties.pciBusID = device + 1;
  return properties;
}

// False for an attribute that is not emulated.
bool Attribute(const cudaDeviceProp& properties, cudaDeviceAttr attribute, int* value) {
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
      *value = properties.maxThreadsPerBlock;
      return true;
    case cudaDevAttrMaxBlockDimX:
      *value = properties.maxThreadsDim[0];
      return true;
    case cudaDevAttrMaxGridDimX:
      *value = properties.maxGridSize[0];
      return true;
    case cudaDevAttrMaxGridDimY:
      *value = properties.maxGridSize[1];
      return true;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = kSharedBytes;
      return true;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = kSharedBytesOptIn;
      return true;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = kSharedBytesOfMultiprocessor;
      return true;
    case cudaDevAttrWarpSize:
      *value = properties.warpSize;
      return true;
    case cudaDevAttrMultiProcessorCount:
      *value = properties.multiProcessorCount;
      return true;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *value = properties.maxThreadsPerMultiProcessor;
      return true;
    case cudaDevAttrMaxBlocksPerMultiprocessor:
      *value = properties.maxBlocksPerMultiProcessor;
      return true;
    case cudaDevAttrL2CacheSize:
      *value = properties.l2CacheSize;
      return true;
    case cudaDevAttrComputeCapabilityMajor:
      *value = properties.major;
      return true;
    case cudaDevAttrComputeCapabilityMinor:
      *value = properties.minor;
      return true;
    case cudaDevAttrAsyncEngineCount:
      *value = properties.asyncEngineCount;
      return true;
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrStreamPrioritiesSupported:
    case cudaDevAttrHostRegisterSupported:
      *value = 1;
      return true;
    case cudaDevAttrPciBusId:
      *value = properties.pciBusID;
      return true;
    case cudaDevAttrIntegrated:
    case cudaDevAttrKernelExecTimeout:
    case cudaDevAttrComputeMode:
    case cudaDevAttrEccEnabled:
    case cudaDevAttrManagedMemory:
    case cudaDevAttrMemoryPoolsSupported:
    case cudaDevAttrCooperativeLaunch:
      *value = 0;
      return true;
    default:
      return false;
  }
}

}  // namespace
}  // namespace trainyard::cuda_on_cpu

using trainyard::cuda_on_cpu::Call;
using trainyard::cuda_on_cpu::Exists;
using trainyard::cuda_on_cpu::Lock;
using trainyard::cuda_on_cpu::Machine;

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  if (count != nullptr) {
    *count = 0;
  }
  return Call([&](Machine& machine, Lock&) {
    if (count == nullptr) {
      return cudaErrorInvalidValue;
    }
    *count = machine.device_count;
    return cudaSuccess;
  });
}

cudaError_t cudaSetDevice(int device) {
  return Call([&](Machine& machine, Lock&) {
    if (!Exists(machine, device)) {
      return cudaErrorInvalidDevice;
    }
    trainyard::cuda_on_cpu::current_device = device;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDevice(int* device) {
  return Call([&](Machine&, Lock&) {
    if (device == nullptr) {
      return cudaErrorInvalidValue;
    }
    *device = trainyard::cuda_on_cpu::current_device;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return Call([&](Machine& machine, Lock&) {
    if (properties == nullptr) {
      return cudaErrorInvalidValue;
    }
    if (!Exists(machine, device)) {
      return cudaErrorInvalidDevice;
    }
    *properties = trainyard::cuda_on_cpu::Properties(machine, device);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return Call([&](Machine& machine, Lock&) {
    if (!Exists(machine, device)) {
      return cudaErrorInvalidDevice;
    }
    const cudaDeviceProp properties = trainyard::cuda_on_cpu::Properties(machine, device);
    return value != nullptr && trainyard::cuda_on_cpu::Attribute(properties, attribute, value)
               ? cudaSuccess
               : cudaErrorInvalidValue;
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  return Call([&](Machine& machine, Lock&) {
    if (id == nullptr || length < 13) {
      return cudaErrorInvalidValue;
    }
    if (!Exists(machine, device)) {
      return cudaErrorInvalidDevice;
    }
    std::snprintf(id, static_cast<size_t>(length), "0000:%02X:00.0",
                  static_cast<unsigned>(device + 1));
    return cudaSuccess;
  });
}

// The devices are on one host, but none can reach the memory of another.
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return Call([&](Machine& machine, Lock&) {
    if (can == nullptr || !Exists(machine, device) || !Exists(machine, peer)) {
      return cudaErrorInvalidDevice;
    }
    *can = 0;
    return cudaSuccess;
  });
}

// Both functions also answer without a driver.

cudaError_t cudaDriverGetVersion(int* version) {
  if (version == nullptr) {
    return trainyard::cuda_on_cpu::RecordError(cudaErrorInvalidValue);
  }
  Machine& machine = Machine::Get();
  const Lock lock(machine.mutex);
  *version = machine.device_count == trainyard::cuda_on_cpu::kNoDriver ? 0 : CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  if (version == nullptr) {
    return trainyard::cuda_on_cpu::RecordError(cudaErrorInvalidValue);
  }
  *version = CUDART_VERSION;
  return cudaSuccess;
}

}  // extern "C"
