// Launches kernels that the C++ compiler compiled.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <source_location>
#include <type_traits>
#include <vector>

namespace trainyard::cuda_on_cpu {

// A stream, and the line that named it, so that messages can identify the launch.
struct StreamAt {
  // The conversion is implicit, since the launcher of a kernel passes a plain stream.
  StreamAt(cudaStream_t given,  // NOLINT(google-explicit-constructor)
           std::source_location named = std::source_location::current())
      : stream(given), where(named) {}

  cudaStream_t stream;
  std::source_location where;
};

// Enqueues `thread` to be called once for each thread of the grid. `kernel` identifies the kernel
// for cudaFuncSetAttribute. Leaves an error for cudaGetLastError if hardware of compute capability
// 9.0 would refuse: cudaErrorInvalidConfiguration for empty or too large grids and blocks,
// cudaErrorInvalidValue for more dynamic shared memory than the kernel may use. Ends the process if
// one of the pointers for the kernel leads to pageable memory of the host.
void LaunchKernel(const void* kernel, dim3 grid, dim3 block, size_t dynamic_shared,
                  const StreamAt& stream, const std::vector<const void*>& pointers,
                  std::function<void()> thread);

// Adds the argument of a kernel if it is a pointer.
template <class T>
void AddPointer(const T& argument, std::vector<const void*>& pointers) {
  if constexpr (std::is_pointer_v<T>) {
    pointers.push_back(argument);
  }
}

}  // namespace trainyard::cuda_on_cpu
