#include <atomic>
#include <cstdlib>
#include <cstring>

#include "tests/testing/cuda_on_cpu/cuda_on_cpu.h"
#include "tests/testing/cuda_on_cpu/grid.h"
#include "tests/testing/cuda_on_cpu/launch.h"

namespace trainyard::cuda_on_cpu {
namespace {
std::atomic<uint64_t> seed = 1;
std::atomic<int64_t> kernels = 0;
thread_local cudaError_t last_error = cudaSuccess;
}  // namespace

cudaError_t Enqueue(cudaStream_t, std::function<void()> work) {
  work();
  return cudaSuccess;
}
cudaError_t RecordError(cudaError_t error) {
  if (error != cudaSuccess) {
    last_error = error;
  }
  return error;
}
int64_t KernelsLaunched() {
  return kernels;
}
void SetSeed(uint64_t value) {
  seed = value;
}

void LaunchKernel(const void*, dim3 grid, dim3 block, size_t dynamic_shared, const StreamAt& stream,
                  std::function<void()> thread) {
  ++kernels;
  RunGrid({grid, block, dynamic_shared, stream.where, ++seed}, thread);
}
}  // namespace trainyard::cuda_on_cpu

using trainyard::cuda_on_cpu::last_error;
extern "C" {
cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}
cudaError_t cudaPeekAtLastError() {
  return last_error;
}
cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  *pointer = std::malloc(bytes);
  std::memset(*pointer, 0xFF, bytes);
  return cudaSuccess;
}
cudaError_t cudaFree(void* pointer) {
  std::free(pointer);
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  std::memset(to, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t) {
  std::memset(to, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = nullptr;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) {
  return cudaSuccess;
}
const char* cudaGetErrorString(cudaError_t) {
  return "a CUDA error";
}
const char* cudaGetErrorName(cudaError_t) {
  return "a CUDA error";
}
}
