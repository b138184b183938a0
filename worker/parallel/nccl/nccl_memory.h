// Memory of a device that ranks of one host can read from each other, and that NCCL sums without
// copying it first, on machines whose GPUs can do that.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstddef>

#include "absl/status/statusor.h"

namespace trainyard::parallel {

// Allocates memory of the current device, which is not cleared. NCCL takes plain memory where the
// device has no other. Returns RESOURCE_EXHAUSTED if there is not enough.
absl::StatusOr<void*> AllocateNcclMemory(size_t bytes);
void FreeNcclMemory(void* memory);

// Registers memory with a communicator, which then needs no copies of it. It borrows both, and ends
// before them.
class NcclRegistration {
 public:
  NcclRegistration() = default;
  // If NCCL refuses, the log says so, and sums are slower.
  NcclRegistration(ncclComm_t communicator, void* memory, size_t bytes);
  NcclRegistration(NcclRegistration&& other) noexcept;
  NcclRegistration& operator=(NcclRegistration&& other) noexcept;
  ~NcclRegistration();

  // Forgets the registration, which ended with its communicator.
  void Abandon() { handle_ = nullptr; }
  bool is_registered() const { return handle_ != nullptr; }

 private:
  ncclComm_t communicator_ = nullptr;
  void* handle_ = nullptr;
};

}  // namespace trainyard::parallel
