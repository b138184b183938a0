// The language of kernels for the C++ compiler. Included before a .cu file (-include), it turns the
// file into plain C++ whose kernels run on the emulated device. See ty_kernels in
// cmake/TrainyardCuda.cmake.
//
// These are not supported: textures, cooperative groups, threads of different blocks that wait for
// each other, loops that wait for another thread to write memory, tensor-core intrinsics and inline
// PTX.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>
#include <vector_functions.h>
#include <vector_types.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/testing/cuda_on_cpu/grid.h"
#include "tests/testing/cuda_on_cpu/intrinsics.h"
#include "tests/testing/cuda_on_cpu/launch.h"
#include "tests/testing/cuda_on_cpu/synchronization.h"

// Each thread of the host runs one block at a time. As on hardware, shared memory holds what the
// block before has left there.
#undef __shared__
#define __shared__ static thread_local

// The headers do not define this for a C++ compiler.
#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __grid_constant__
#define __grid_constant__

// The launch gives the size. All bytes are 0xFF when the block starts.
#define TY_DYNAMIC_SHARED(type, name) \
  type* name = static_cast<type*>(::trainyard::cuda_on_cpu::DynamicShared())

// These are constants, as in CUDA: a kernel cannot assign to them.
#define threadIdx (std::as_const(::trainyard::cuda_on_cpu::place.thread))
#define blockIdx (std::as_const(::trainyard::cuda_on_cpu::place.block))
#define blockDim (std::as_const(::trainyard::cuda_on_cpu::place.block_size))
#define gridDim (std::as_const(::trainyard::cuda_on_cpu::place.grid_size))
#define warpSize (static_cast<int>(::trainyard::cuda_on_cpu::kWarpLanes))

namespace trainyard::engine::cuda {

// Launches `kernel` on the stream. An error stays for cudaGetLastError.
template <class... Parameters, class... Arguments>
void Launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t dynamic_shared,
            cuda_on_cpu::StreamAt stream, Arguments... arguments) {
  std::vector<const void*> pointers;
  (cuda_on_cpu::AddPointer(arguments, pointers), ...);
  cuda_on_cpu::LaunchKernel(
      reinterpret_cast<const void*>(kernel), grid, block, dynamic_shared, stream, pointers,
      [kernel, copies = std::tuple<Parameters...>(static_cast<Parameters>(arguments)...)] {
        std::apply(kernel, copies);
      });
}

}  // namespace trainyard::engine::cuda

// nvcc's headers offer this beside the runtime's function: it takes kernels by their type.
template <class... Parameters>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Parameters...), cudaFuncAttribute attribute,
                                 int value) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}
template <class... Parameters>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks,
                                                          void (*kernel)(Parameters...),
                                                          int block_size, size_t dynamic_shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(
      blocks, reinterpret_cast<const void*>(kernel), block_size, dynamic_shared);
}
