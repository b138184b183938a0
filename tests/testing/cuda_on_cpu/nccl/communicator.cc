// Communicators and their state.
#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <set>

#include "tests/testing/cuda_on_cpu/nccl/group.h"
#include "tests/testing/cuda_on_cpu/nccl/nccl_on_cpu.h"

namespace trainyard::cuda_on_cpu::nccl {
namespace {

// The living communicators, by which stale handles are recognised.
std::mutex handles_mutex;
std::set<const ncclComm*> communicators;
int forgotten_registrations = 0;

ncclResult_t Release(ncclComm* communicator) {
  {
    const std::lock_guard lock(handles_mutex);
    if (communicators.erase(communicator) == 0) return ncclInvalidArgument;
  }
  communicator->group->Leave(communicator->rank);
  delete communicator;
  return ncclSuccess;
}

}  // namespace

int Registrations() {
  const std::lock_guard lock(handles_mutex);
  size_t count = 0;
  for (const ncclComm* communicator : communicators) count += communicator->registered.size();
  return static_cast<int>(count);
}

int ForgottenRegistrations() {
  const std::lock_guard lock(handles_mutex);
  return forgotten_registrations;
}

bool Exists(const ncclComm* communicator) {
  const std::lock_guard lock(handles_mutex);
  return communicators.contains(communicator);
}

void BreakAsynchronously(ncclComm_t communicator, ncclResult_t error) {
  communicator->group->Break(communicator->rank, error);
}

int LiveCommunicators() {
  const std::lock_guard lock(handles_mutex);
  return static_cast<int>(communicators.size());
}

}  // namespace trainyard::cuda_on_cpu::nccl

using trainyard::cuda_on_cpu::nccl::communicators;
using trainyard::cuda_on_cpu::nccl::Exists;
using trainyard::cuda_on_cpu::nccl::Group;
using trainyard::cuda_on_cpu::nccl::handles_mutex;
using trainyard::cuda_on_cpu::nccl::Release;

extern "C" {

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error";
    case ncclSystemError:
      return "unhandled system error";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "unknown result code";
  }
}

const char* ncclGetLastError(ncclComm_t) {
  return "emulated";
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<int> made = 0;
  if (id == nullptr) return ncclInvalidArgument;
  *id = {};
  std::snprintf(id->internal, sizeof(id->internal), "nccl on cpu %d", ++made);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* result, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  int device = 0;
  if (result == nullptr || ranks < 1 || rank < 0 || rank >= ranks) return ncclInvalidArgument;
  *result = nullptr;
  if (config != nullptr && (config->size != sizeof(ncclConfig_t) || config->magic != 0xcafebeef)) {
    return ncclInvalidArgument;
  }
  if (cudaGetDevice(&device) != cudaSuccess) return ncclUnhandledCudaError;
  auto group = Group::OfId(id, ranks);
  if (group == nullptr) return ncclInvalidArgument;
  if (const ncclResult_t joined = group->Join(rank, device); joined != ncclSuccess) return joined;
  auto* communicator = new ncclComm;
  communicator->group = std::move(group);
  communicator->rank = rank;
  communicator->device = device;
  communicator->blocking = config == nullptr || config->blocking != 0;
  {
    const std::lock_guard lock(handles_mutex);
    communicators.insert(communicator);
  }
  *result = communicator;
  return communicator->blocking ? communicator->group->AwaitState(rank) : ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* error) {
  if (error == nullptr || !Exists(communicator)) return ncclInvalidArgument;
  *error = communicator->finalized ? ncclSuccess : communicator->group->State(communicator->rank);
  return ncclSuccess;
}

ncclResult_t ncclMemAlloc(void** memory, size_t bytes) {
  if (memory == nullptr || bytes == 0) return ncclInvalidArgument;
  return cudaMalloc(memory, bytes) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclMemFree(void* memory) {
  return cudaFree(memory) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclCommRegister(const ncclComm_t communicator, void* memory, size_t bytes,
                              void** handle) {
  cudaPointerAttributes attributes = {};
  if (!Exists(communicator) || communicator->finalized || memory == nullptr || bytes == 0 ||
      handle == nullptr || cudaPointerGetAttributes(&attributes, memory) != cudaSuccess ||
      attributes.type != cudaMemoryTypeDevice) {
    return ncclInvalidArgument;
  }
  const std::lock_guard lock(handles_mutex);
  communicator->registered.insert(memory);
  *handle = memory;
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t communicator, void* handle) {
  if (!Exists(communicator)) return ncclInvalidArgument;
  const std::lock_guard lock(handles_mutex);
  return communicator->registered.erase(handle) == 1 ? ncclSuccess : ncclInvalidArgument;
}

ncclResult_t ncclCommFinalize(ncclComm_t communicator) {
  if (!Exists(communicator) || communicator->finalized) return ncclInvalidArgument;
  {
    const std::lock_guard lock(handles_mutex);
    trainyard::cuda_on_cpu::nccl::forgotten_registrations +=
        static_cast<int>(communicator->registered.size());
  }
  communicator->finalized = true;
  return communicator->blocking ? ncclSuccess : ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
  return Release(communicator);
}

ncclResult_t ncclCommAbort(ncclComm_t communicator) {
  return Release(communicator);
}

}  // extern "C"
