// Device memory for tests, of a GPU or of the emulation of one: whichever runtime is linked.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <vector>

#include "common/base/check.h"

namespace trainyard {

// An array of plain elements. A failure of the runtime fails the test program.
template <class T>
class DeviceArray {
 public:
  // Not initialized.
  explicit DeviceArray(size_t count) : count_(count) {
    void* data = nullptr;
    TY_CHECK(cudaMalloc(&data, count == 0 ? 1 : count * sizeof(T)) == cudaSuccess);
    data_ = static_cast<T*>(data);
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    Assign(values);
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { cudaFree(data_); }

  T* data() const { return data_; }
  size_t size() const { return count_; }

  void Assign(const std::vector<T>& values) {
    TY_CHECK(values.size() == count_);
    TY_CHECK(cudaMemcpy(data_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice) ==
             cudaSuccess);
  }
  // Waits for the device.
  std::vector<T> ToHost() const {
    TY_CHECK(cudaDeviceSynchronize() == cudaSuccess);
    std::vector<T> values(count_);
    TY_CHECK(cudaMemcpy(values.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost) ==
             cudaSuccess);
    return values;
  }

 private:
  T* data_ = nullptr;
  size_t count_;
};

}  // namespace trainyard
