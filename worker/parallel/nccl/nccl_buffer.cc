#include "worker/parallel/nccl/nccl_buffer.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"

namespace trainyard::parallel {

absl::StatusOr<NcclBuffer> NcclBuffer::Allocate(int64_t bytes, NcclCommunicator* communicator) {
  NcclBuffer buffer;
  buffer.bytes_ = bytes;
  const ncclResult_t result = ncclMemAlloc(&buffer.data_, static_cast<size_t>(bytes));
  buffer.is_of_nccl_ = result == ncclSuccess;
  if (!buffer.is_of_nccl_) {
    LogWarning("NCCL gives no memory of its own; it will copy what it sends",
               {{"bytes", absl::StrCat(bytes)}, {"error", ncclGetErrorString(result)}});
    // Its failure may have left an error of CUDA that is not the next caller's.
    (void)cudaGetLastError();
    const cudaError_t error = cudaMalloc(&buffer.data_, static_cast<size_t>(bytes));
    if (error != cudaSuccess) {
      (void)cudaGetLastError();
      buffer.data_ = nullptr;
      return absl::ResourceExhaustedError(
          absl::StrCat(bytes, " bytes of device memory: ", cudaGetErrorString(error)));
    }
  }
  if (buffer.is_of_nccl_ && communicator != nullptr) buffer.Register(*communicator);
  return buffer;
}

void NcclBuffer::Register(NcclCommunicator& communicator) {
  if (communicator.handle() == nullptr) return;
  const ncclResult_t result =
      ncclCommRegister(communicator.handle(), data_, static_cast<size_t>(bytes_), &registration_);
  if (result == ncclSuccess && registration_ != nullptr) {
    communicator_ = &communicator;
    return;
  }
  registration_ = nullptr;
  LogWarning("NCCL does not register memory; it will copy what it sends",
             {{"bytes", absl::StrCat(bytes_)}, {"error", ncclGetErrorString(result)}});
}

NcclBuffer::NcclBuffer(NcclBuffer&& other) noexcept {
  *this = std::move(other);
}

NcclBuffer& NcclBuffer::operator=(NcclBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(is_of_nccl_, other.is_of_nccl_);
  std::swap(communicator_, other.communicator_);
  std::swap(registration_, other.registration_);
  return *this;
}

NcclBuffer::~NcclBuffer() {
  if (data_ == nullptr) return;
  // An aborted communicator has forgotten its registrations.
  if (registration_ != nullptr && communicator_->handle() != nullptr) {
    (void)ncclCommDeregister(communicator_->handle(), registration_);
  }
  if (is_of_nccl_) {
    (void)ncclMemFree(data_);
  } else {
    (void)cudaFree(data_);
  }
}

}  // namespace trainyard::parallel
