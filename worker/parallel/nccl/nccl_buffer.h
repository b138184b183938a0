// Device memory that NCCL can send from without copies: for the arena of gradients.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "worker/parallel/nccl/nccl_communicator.h"

namespace trainyard::parallel {

class NcclBuffer {
 public:
  // So many bytes, not cleared, on the current device. Where NCCL has no memory of its kind for us,
  // ordinary device memory, which is not registered; the log tells. RESOURCE_EXHAUSTED where there
  // is none of that either. `communicator` may be null: then nothing is registered. It is borrowed,
  // and must outlive the buffer.
  static absl::StatusOr<NcclBuffer> Allocate(int64_t bytes, NcclCommunicator* communicator);

  NcclBuffer(NcclBuffer&& other) noexcept;
  NcclBuffer& operator=(NcclBuffer&& other) noexcept;
  // Waits for the device.
  ~NcclBuffer();

  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  bool is_registered() const { return registration_ != nullptr; }

 private:
  NcclBuffer() = default;
  void Register(NcclCommunicator& communicator);

  void* data_ = nullptr;
  int64_t bytes_ = 0;
  bool is_of_nccl_ = false;
  NcclCommunicator* communicator_ = nullptr;
  void* registration_ = nullptr;
};

}  // namespace trainyard::parallel
