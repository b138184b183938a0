// Owns pinned memory of the host, in which values of a device are mirrored.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"

namespace trainyard::parallel {

// Floats that the device and the host both read and write.
class Mirror {
 public:
  Mirror() = default;
  Mirror(Mirror&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Mirror& operator=(Mirror&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Mirror() {
    if (data_ != nullptr) (void)cudaFreeHost(data_);
  }

  // Returns RESOURCE_EXHAUSTED if the host has no memory to pin.
  absl::Status Create(size_t size) {
    size_ = size;
    if (size == 0) return absl::OkStatus();
    const cudaError_t error =
        cudaHostAlloc(reinterpret_cast<void**>(&data_), size * sizeof(float), cudaHostAllocDefault);
    if (error == cudaSuccess) return absl::OkStatus();
    (void)cudaGetLastError();
    return absl::ResourceExhaustedError(absl::StrCat("pinned memory of ", size * sizeof(float),
                                                     " bytes: ", cudaGetErrorString(error)));
  }
  absl::Span<float> span() const { return {data_, size_}; }

 private:
  float* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace trainyard::parallel
