// Memory of the device, and of the host that the device can reach. It is allocated from the heap
// with exactly the size that was asked for, so that the address sanitizer notices a kernel that
// leaves it.
#include "tests/testing/cuda_on_cpu/memory.h"

#include <cstdlib>
#include <cstring>
#include <utility>

#include "tests/testing/cuda_on_cpu/capture.h"

namespace trainyard::cuda_on_cpu {
namespace {

// cudaMalloc promises this alignment.
constexpr size_t kAlignment = 256;

cudaError_t Allocate(Machine& machine, void** pointer, size_t bytes, MemoryKind kind) {
  if (pointer == nullptr) {
    return cudaErrorInvalidValue;
  }
  const cudaError_t error = CheckUnsafeCall(machine);
  if (error != cudaSuccess) {
    return error;
  }
  *pointer = nullptr;
  if (bytes == 0) {
    return cudaSuccess;
  }
  Device& device = machine.CurrentDevice();
  const bool on_device = kind == MemoryKind::kDevice;
  const auto left = static_cast<size_t>(machine.device_bytes - device.live_bytes);
  if ((on_device && bytes > left) || posix_memalign(pointer, kAlignment, bytes) != 0) {
    *pointer = nullptr;
    return cudaErrorMemoryAllocation;
  }
  // If it is read before it is written, it is a NaN in every type.
  std::memset(*pointer, 0xFF, bytes);
  if (on_device) {
    device.live_bytes += static_cast<int64_t>(bytes);
  }
  machine.allocations[reinterpret_cast<uintptr_t>(*pointer)] = {bytes, kind, device.index};
  return cudaSuccess;
}

// Like hardware, it first waits for all work of the device.
cudaError_t Free(Machine& machine, Lock& lock, void* pointer, MemoryKind kind) {
  if (pointer == nullptr) {
    return cudaSuccess;
  }
  const cudaError_t error = CheckUnsafeCall(machine);
  if (error != cudaSuccess) {
    return error;
  }
  auto found = machine.allocations.find(reinterpret_cast<uintptr_t>(pointer));
  if (found == machine.allocations.end() || found->second.kind != kind) {
    return cudaErrorInvalidValue;
  }
  Device& device = machine.devices[static_cast<size_t>(found->second.device)];
  machine.Drain(device, lock);
  // Another thread may have freed it in the meantime.
  found = machine.allocations.find(reinterpret_cast<uintptr_t>(pointer));
  if (found == machine.allocations.end()) {
    return cudaErrorInvalidValue;
  }
  if (kind == MemoryKind::kDevice) {
    device.live_bytes -= static_cast<int64_t>(found->second.bytes);
  }
  machine.allocations.erase(found);
  if (kind != MemoryKind::kRegistered) {
    std::free(pointer);
  }
  return cudaSuccess;
}

}  // namespace

const std::pair<const uintptr_t, Allocation>* FindAllocation(const Machine& machine,
                                                             const void* address) {
  const auto start = reinterpret_cast<uintptr_t>(address);
  auto after = machine.allocations.upper_bound(start);
  if (after == machine.allocations.begin()) {
    return nullptr;
  }
  --after;
  return start < after->first + after->second.bytes ? &*after : nullptr;
}

bool KindOfRange(const Machine& machine, const void* address, size_t bytes, MemoryKind* kind) {
  const auto* found = FindAllocation(machine, address);
  if (found == nullptr) {
    *kind = MemoryKind::kPageable;
    return true;
  }
  *kind = found->second.kind;
  const size_t offset = reinterpret_cast<uintptr_t>(address) - found->first;
  return bytes <= found->second.bytes - offset;
}

int64_t LiveBytes() {
  Machine& machine = Machine::Get();
  const Lock lock(machine.mutex);
  int64_t bytes = 0;
  for (const Device& device : machine.devices) {
    bytes += device.live_bytes;
  }
  return bytes;
}

}  // namespace trainyard::cuda_on_cpu

using trainyard::cuda_on_cpu::Allocate;
using trainyard::cuda_on_cpu::Call;
using trainyard::cuda_on_cpu::Free;
using trainyard::cuda_on_cpu::Lock;
using trainyard::cuda_on_cpu::Machine;
using trainyard::cuda_on_cpu::MemoryKind;

extern "C" {

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  return Call([&](Machine& machine, Lock&) {
    return Allocate(machine, pointer, bytes, MemoryKind::kDevice);
  });
}

cudaError_t cudaFree(void* pointer) {
  return Call([&](Machine& machine, Lock& lock) {
    return Free(machine, lock, pointer, MemoryKind::kDevice);
  });
}

cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned) {
  return Call([&](Machine& machine, Lock&) {
    return Allocate(machine, pointer, bytes, MemoryKind::kPinned);
  });
}

cudaError_t cudaMallocHost(void** pointer, size_t bytes) {
  return cudaHostAlloc(pointer, bytes, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void* pointer) {
  return Call([&](Machine& machine, Lock& lock) {
    return Free(machine, lock, pointer, MemoryKind::kPinned);
  });
}

cudaError_t cudaHostRegister(void* pointer, size_t bytes, unsigned) {
  return Call([&](Machine& machine, Lock&) {
    if (pointer == nullptr || bytes == 0) {
      return cudaErrorInvalidValue;
    }
    if (trainyard::cuda_on_cpu::FindAllocation(machine, pointer) != nullptr) {
      return cudaErrorHostMemoryAlreadyRegistered;
    }
    machine.allocations[reinterpret_cast<uintptr_t>(pointer)] = {bytes, MemoryKind::kRegistered,
                                                                 machine.CurrentDevice().index};
    return cudaSuccess;
  });
}

cudaError_t cudaHostUnregister(void* pointer) {
  return Call([&](Machine& machine, Lock& lock) {
    const auto* found = trainyard::cuda_on_cpu::FindAllocation(machine, pointer);
    if (found == nullptr || found->second.kind != MemoryKind::kRegistered) {
      return cudaErrorHostMemoryNotRegistered;
    }
    return Free(machine, lock, pointer, MemoryKind::kRegistered);
  });
}

cudaError_t cudaHostGetDevicePointer(void** on_device, void* on_host, unsigned) {
  return Call([&](Machine& machine, Lock&) {
    const auto* found = trainyard::cuda_on_cpu::FindAllocation(machine, on_host);
    if (on_device == nullptr || found == nullptr || found->second.kind == MemoryKind::kDevice) {
      return cudaErrorInvalidValue;
    }
    *on_device = on_host;
    return cudaSuccess;
  });
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* all_bytes) {
  return Call([&](Machine& machine, Lock&) {
    if (free_bytes == nullptr || all_bytes == nullptr) {
      return cudaErrorInvalidValue;
    }
    *all_bytes = static_cast<size_t>(machine.device_bytes);
    *free_bytes = static_cast<size_t>(machine.device_bytes - machine.CurrentDevice().live_bytes);
    return cudaSuccess;
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  return Call([&](Machine& machine, Lock&) {
    if (attributes == nullptr) {
      return cudaErrorInvalidValue;
    }
    *attributes = {};
    const auto* found = trainyard::cuda_on_cpu::FindAllocation(machine, pointer);
    auto* address = const_cast<void*>(pointer);
    attributes->hostPointer = address;
    if (found == nullptr) {
      attributes->type = cudaMemoryTypeUnregistered;
      attributes->device = cudaInvalidDeviceId;
      return cudaSuccess;
    }
    const bool on_device = found->second.kind == MemoryKind::kDevice;
    attributes->type = on_device ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
    attributes->device = found->second.device;
    attributes->devicePointer = address;
    attributes->hostPointer = on_device ? nullptr : address;
    return cudaSuccess;
  });
}

}  // extern "C"
