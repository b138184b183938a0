// Library handles, versions, error texts and streams.
#include "tests/testing/cuda_on_cpu/cudnn/handle.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "tests/testing/cuda_on_cpu/cudnn/cudnn_on_cpu.h"
#include "tests/testing/cuda_on_cpu/cudnn/status.h"

// The object behind a caller's handle.
struct cudnnContext {
  cudaStream_t stream = nullptr;
  void* memory = nullptr;  // see SetHandleBytes
};

namespace trainyard::cuda_on_cpu {
namespace cudnn {
namespace {

std::atomic<int64_t> live_objects{0};
std::atomic<int64_t> handle_bytes{0};

std::string& LastMessage() {
  thread_local std::string message;
  return message;
}

// The handles that are alive. A test may by mistake use one after its end, so the memory behind a
// pointer proves nothing.
class Handles {
 public:
  static Handles& Get() {
    static auto& handles = *new Handles();
    return handles;
  }
  void Add(cudnnHandle_t handle) {
    std::lock_guard lock(mutex_);
    living_.insert(handle);
  }
  bool Remove(cudnnHandle_t handle) {
    std::lock_guard lock(mutex_);
    return living_.erase(handle) != 0;
  }
  bool Has(cudnnHandle_t handle) {
    std::lock_guard lock(mutex_);
    return living_.count(handle) != 0;
  }
  int64_t Count() {
    std::lock_guard lock(mutex_);
    return static_cast<int64_t>(living_.size());
  }

 private:
  std::mutex mutex_;
  std::set<cudnnHandle_t> living_;
};

}  // namespace

cudnnStatus_t Fail(cudnnStatus_t status, std::string message) {
  LastMessage() = std::string(cudnnGetErrorString(status)) + ": " + std::move(message);
  return status;
}

cudnnStatus_t CheckHandle(cudnnHandle_t handle) {
  if (handle == nullptr) {
    return Fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "the handle is null");
  }
  if (!Handles::Get().Has(handle)) {
    return Fail(CUDNN_STATUS_BAD_PARAM, "the handle was never created, or is destroyed");
  }
  return CUDNN_STATUS_SUCCESS;
}

cudaStream_t StreamOf(cudnnHandle_t handle) {
  return handle->stream;
}

void CountObjects(int64_t change) {
  live_objects += change;
}

}  // namespace cudnn

int64_t LiveCudnnObjects() {
  return cudnn::live_objects;
}

int64_t LiveCudnnHandles() {
  return cudnn::Handles::Get().Count();
}

void SetHandleBytes(int64_t bytes) {
  cudnn::handle_bytes = bytes;
}

}  // namespace trainyard::cuda_on_cpu

using trainyard::cuda_on_cpu::cudnn::CheckHandle;
using trainyard::cuda_on_cpu::cudnn::CountObjects;
using trainyard::cuda_on_cpu::cudnn::Fail;
using trainyard::cuda_on_cpu::cudnn::handle_bytes;
using trainyard::cuda_on_cpu::cudnn::Handles;
using trainyard::cuda_on_cpu::cudnn::LastMessage;

size_t cudnnGetVersion() {
  return CUDNN_VERSION;
}

size_t cudnnGetMaxDeviceVersion() {
  return 900;
}

size_t cudnnGetCudartVersion() {
  return CUDART_VERSION;
}

const char* cudnnGetErrorString(cudnnStatus_t status) {
#define TY_CUDNN_NAME(name) \
  case name:                \
    return #name
  switch (status) {
    TY_CUDNN_NAME(CUDNN_STATUS_SUCCESS);
    TY_CUDNN_NAME(CUDNN_STATUS_NOT_INITIALIZED);
    TY_CUDNN_NAME(CUDNN_STATUS_SERIALIZATION_VERSION_MISMATCH);
    TY_CUDNN_NAME(CUDNN_STATUS_BAD_PARAM);
    TY_CUDNN_NAME(CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
    TY_CUDNN_NAME(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER);
    TY_CUDNN_NAME(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
    TY_CUDNN_NAME(CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND);
    TY_CUDNN_NAME(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT);
    TY_CUDNN_NAME(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH);
    TY_CUDNN_NAME(CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES);
    TY_CUDNN_NAME(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE);
    TY_CUDNN_NAME(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE);
    TY_CUDNN_NAME(CUDNN_STATUS_NOT_SUPPORTED);
    TY_CUDNN_NAME(CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN);
    TY_CUDNN_NAME(CUDNN_STATUS_NOT_SUPPORTED_SHAPE);
    TY_CUDNN_NAME(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE);
    TY_CUDNN_NAME(CUDNN_STATUS_NOT_SUPPORTED_LAYOUT);
    TY_CUDNN_NAME(CUDNN_STATUS_EXECUTION_FAILED);
    TY_CUDNN_NAME(CUDNN_STATUS_EXECUTION_FAILED_CUDART);
    default:
      return "CUDNN_STATUS of another name";
  }
#undef TY_CUDNN_NAME
}

void cudnnGetLastErrorString(char* message, size_t max_size) {
  if (message == nullptr || max_size == 0) {
    return;
  }
  const size_t size = std::min(LastMessage().size(), max_size - 1);
  std::memcpy(message, LastMessage().data(), size);
  message[size] = '\0';
  LastMessage().clear();
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  if (handle == nullptr) {
    return Fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no place for the handle");
  }
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess || devices == 0) {
    return Fail(CUDNN_STATUS_NOT_INITIALIZED, "there is no CUDA device");
  }
  void* memory = nullptr;
  if (cudaMalloc(&memory, static_cast<size_t>(handle_bytes.load())) != cudaSuccess) {
    return Fail(CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED,
                "the device has no memory for the handle");
  }
  *handle = new cudnnContext{.stream = nullptr, .memory = memory};
  Handles::Get().Add(*handle);
  CountObjects(1);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  TY_CUDNN_TRY(CheckHandle(handle));
  Handles::Get().Remove(handle);
  CountObjects(-1);
  (void)cudaFree(handle->memory);
  delete handle;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  TY_CUDNN_TRY(CheckHandle(handle));
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t* stream) {
  TY_CUDNN_TRY(CheckHandle(handle));
  if (stream == nullptr) {
    return Fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no place for the stream");
  }
  *stream = handle->stream;
  return CUDNN_STATUS_SUCCESS;
}
