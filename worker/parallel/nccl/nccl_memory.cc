// Wraps NCCL's allocation and registration of memory.
#include "worker/parallel/nccl/nccl_memory.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"

namespace trainyard::parallel {

absl::StatusOr<void*> AllocateNcclMemory(size_t bytes) {
  void* memory = nullptr;
  const ncclResult_t result = ncclMemAlloc(&memory, bytes);
  if (result == ncclSuccess) return memory;
  // The error is reported here, and must not be found by the next launch.
  (void)cudaGetLastError();
  return absl::ResourceExhaustedError(
      absl::StrCat("allocating ", bytes,
                   " bytes of the device for sums over ranks: ", ncclGetErrorString(result)));
}

void FreeNcclMemory(void* memory) {
  (void)ncclMemFree(memory);
}

NcclRegistration::NcclRegistration(ncclComm_t communicator, void* memory, size_t bytes)
    : communicator_(communicator) {
  if (bytes == 0) return;
  const ncclResult_t result = ncclCommRegister(communicator, memory, bytes, &handle_);
  if (result == ncclSuccess) return;
  handle_ = nullptr;
  LogWarning("NCCL does not register the gradients, so that it copies them",
             {{"error", ncclGetErrorString(result)}});
}

NcclRegistration::NcclRegistration(NcclRegistration&& other) noexcept
    : communicator_(other.communicator_), handle_(std::exchange(other.handle_, nullptr)) {}

NcclRegistration& NcclRegistration::operator=(NcclRegistration&& other) noexcept {
  std::swap(communicator_, other.communicator_);
  std::swap(handle_, other.handle_);
  return *this;
}

NcclRegistration::~NcclRegistration() {
  if (handle_ != nullptr) (void)ncclCommDeregister(communicator_, handle_);
}

}  // namespace trainyard::parallel
