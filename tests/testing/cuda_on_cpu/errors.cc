// The last error of each thread, and the texts of errors.
#include <array>
#include <utility>

#include "tests/testing/cuda_on_cpu/cuda_on_cpu.h"

namespace trainyard::cuda_on_cpu {
namespace {

thread_local constinit cudaError_t last_error = cudaSuccess;

struct Words {
  cudaError_t error;
  const char* name;
  const char* text;
};
#define TY_ERROR(name, text) \
  Words {                    \
    name, #name, text        \
  }
// The errors that the emulation returns, with the runtime's texts.
constexpr std::array kWords = {
    TY_ERROR(cudaSuccess, "no error"),
    TY_ERROR(cudaErrorInvalidValue, "invalid argument"),
    TY_ERROR(cudaErrorMemoryAllocation, "out of memory"),
    TY_ERROR(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    TY_ERROR(cudaErrorInvalidPitchValue, "invalid pitch argument"),
    TY_ERROR(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    TY_ERROR(cudaErrorInsufficientDriver,
             "CUDA driver version is insufficient for CUDA runtime version"),
    TY_ERROR(cudaErrorInvalidDeviceFunction, "invalid device function"),
    TY_ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    TY_ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
    TY_ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    TY_ERROR(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    TY_ERROR(cudaErrorNotReady, "device not ready"),
    TY_ERROR(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    TY_ERROR(cudaErrorLaunchFailure, "unspecified launch failure"),
    TY_ERROR(cudaErrorHostMemoryAlreadyRegistered,
             "part or all of the requested memory range is already mapped"),
    TY_ERROR(cudaErrorHostMemoryNotRegistered,
             "pointer does not correspond to a registered memory region"),
    TY_ERROR(cudaErrorNotPermitted, "operation not permitted"),
    TY_ERROR(cudaErrorNotSupported, "operation not supported"),
    TY_ERROR(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    TY_ERROR(cudaErrorStreamCaptureInvalidated,
             "operation failed due to a previous error during capture"),
    TY_ERROR(cudaErrorStreamCaptureMerge,
             "operation would result in a merge of separate capture sequences"),
    TY_ERROR(cudaErrorStreamCaptureUnmatched,
             "capture was not ended in the same stream as it began"),
    TY_ERROR(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    TY_ERROR(cudaErrorStreamCaptureIsolation,
             "dependency created on uncaptured work in another stream"),
    TY_ERROR(cudaErrorStreamCaptureImplicit,
             "operation would make the legacy stream depend on a capturing blocking stream"),
    TY_ERROR(cudaErrorCapturedEvent,
             "operation not permitted on an event last recorded in a "
             "capturing stream"),
    TY_ERROR(cudaErrorStreamCaptureWrongThread,
             "attempt to terminate a thread-local capture sequence from another thread"),
    TY_ERROR(cudaErrorUnknown, "unknown error"),
};
#undef TY_ERROR

const Words* Find(cudaError_t error) {
  for (const Words& words : kWords) {
    if (words.error == error) {
      return &words;
    }
  }
  return nullptr;
}

}  // namespace

cudaError_t RecordError(cudaError_t error) {
  if (error != cudaSuccess) {
    last_error = error;
  }
  return error;
}

}  // namespace trainyard::cuda_on_cpu

extern "C" {

cudaError_t cudaGetLastError() {
  return std::exchange(trainyard::cuda_on_cpu::last_error, cudaSuccess);
}

cudaError_t cudaPeekAtLastError() {
  return trainyard::cuda_on_cpu::last_error;
}

const char* cudaGetErrorName(cudaError_t error) {
  const auto* words = trainyard::cuda_on_cpu::Find(error);
  return words == nullptr ? "unrecognized error code" : words->name;
}

const char* cudaGetErrorString(cudaError_t error) {
  const auto* words = trainyard::cuda_on_cpu::Find(error);
  return words == nullptr ? "unrecognized error code" : words->text;
}

}  // extern "C"
