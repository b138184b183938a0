// Device memory for tests: the same sources run against the emulated device and a real one.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/base/check.h"

namespace trainyard::testing {

// An array of elements in device memory, which is first filled with the bytes 0xA5. Calls wait for
// all that was launched before.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t count) : count_(count) {
    TY_CHECK(cudaMalloc(reinterpret_cast<void**>(&data_), bytes() + 1) == cudaSuccess);
    TY_CHECK(cudaMemset(data_, 0xA5, bytes() + 1) == cudaSuccess);
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) { Write(values); }
  DeviceArray(DeviceArray&& other) noexcept : data_(other.data_), count_(other.count_) {
    other.data_ = nullptr;
  }
  DeviceArray& operator=(DeviceArray&&) = delete;
  ~DeviceArray() { cudaFree(data_); }

  T* data() const { return data_; }
  size_t size() const { return count_; }

  void Write(const std::vector<T>& values) {
    TY_CHECK(values.size() == count_);
    TY_CHECK(cudaMemcpy(data_, values.data(), bytes(), cudaMemcpyHostToDevice) == cudaSuccess);
    // Other streams do not wait for the copy.
    TY_CHECK(cudaStreamSynchronize(nullptr) == cudaSuccess);
  }
  std::vector<T> Read() const {
    std::vector<T> values(count_);
    TY_CHECK(cudaDeviceSynchronize() == cudaSuccess);
    TY_CHECK(cudaMemcpy(values.data(), data_, bytes(), cudaMemcpyDeviceToHost) == cudaSuccess);
    return values;
  }

 private:
  size_t bytes() const { return count_ * sizeof(T); }

  T* data_ = nullptr;
  size_t count_ = 0;
};

}  // namespace trainyard::testing
