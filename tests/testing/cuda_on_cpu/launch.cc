// Checks launches against the device's limits, and queues their grids.
#include "tests/testing/cuda_on_cpu/launch.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <utility>

#include "tests/testing/cuda_on_cpu/append.h"
#include "tests/testing/cuda_on_cpu/cuda_on_cpu.h"
#include "tests/testing/cuda_on_cpu/grid.h"
#include "tests/testing/cuda_on_cpu/limits.h"
#include "tests/testing/cuda_on_cpu/machine.h"
#include "tests/testing/cuda_on_cpu/memory.h"

namespace trainyard::cuda_on_cpu {
namespace {

std::atomic<int64_t> kernels_run = 0;

bool Within(unsigned size, int limit) {
  return size >= 1 && size <= static_cast<unsigned>(limit);
}

bool IsLaunchable(const dim3& grid, const dim3& block) {
  return Within(grid.x, kMaxGridX) && Within(grid.y, kMaxGridYZ) && Within(grid.z, kMaxGridYZ) &&
         Within(block.x, kMaxBlockX) && Within(block.y, kMaxBlockY) &&
         Within(block.z, kMaxBlockZ) && block.x * block.y * block.z <= kMaxBlockThreads;
}

int DynamicSharedLimit(const Machine& machine, const void* kernel) {
  const auto found = machine.dynamic_shared_limits.find(kernel);
  return found == machine.dynamic_shared_limits.end() ? kSharedBytes : found->second;
}

// Ends the process if a kernel would get memory that a GPU cannot reach.
void CheckReachable(const Machine& machine, const StreamAt& stream,
                    const std::vector<const void*>& pointers) {
  for (const void* pointer : pointers) {
    if (pointer == nullptr) continue;
    // The end of an array belongs to it, since a kernel may get an empty rest.
    const void* before = static_cast<const char*>(pointer) - 1;
    if (FindAllocation(machine, pointer) == nullptr && FindAllocation(machine, before) == nullptr) {
      std::cerr << "CUDA on CPU: the kernel launched at " << stream.where.file_name() << ":"
                << stream.where.line() << " is given " << pointer
                << ", which is neither device memory nor pinned" << std::endl;
      std::abort();
    }
  }
}

}  // namespace

int64_t KernelsLaunched() {
  return kernels_run;
}

void LaunchKernel(const void* kernel, dim3 grid, dim3 block, size_t dynamic_shared,
                  const StreamAt& stream, const std::vector<const void*>& pointers,
                  std::function<void()> thread) {
  Call([&](Machine& machine, Lock& lock) {
    if (!IsLaunchable(grid, block)) {
      return cudaErrorInvalidConfiguration;
    }
    if (dynamic_shared > static_cast<size_t>(DynamicSharedLimit(machine, kernel))) {
      return cudaErrorInvalidValue;
    }
    CUstream_st* resolved = machine.Resolve(stream.stream);
    if (resolved == nullptr || resolved->device != &machine.CurrentDevice()) {
      return cudaErrorInvalidResourceHandle;
    }
    CheckReachable(machine, stream, pointers);
    // A launch of a graph draws another order each time.
    auto random = std::make_shared<Random>(machine.NextSeed());
    Grid run = {.grid_size = grid,
                .block_size = block,
                .dynamic_shared_bytes = dynamic_shared,
                .where = stream.where};
    return Append(machine, resolved,
                  {.type = cudaGraphNodeTypeKernel,
                   .work =
                       [run, random, body = std::move(thread)]() mutable {
                         ++kernels_run;
                         run.seed = random->Next();
                         RunGrid(run, body);
                       }},
                  lock);
  });
}

}  // namespace trainyard::cuda_on_cpu

using trainyard::cuda_on_cpu::Call;
using trainyard::cuda_on_cpu::DynamicSharedLimit;
using trainyard::cuda_on_cpu::kMaxBlockThreads;
using trainyard::cuda_on_cpu::kMaxMultiprocessorBlocks;
using trainyard::cuda_on_cpu::kMaxMultiprocessorThreads;
using trainyard::cuda_on_cpu::kSharedBytesOfMultiprocessor;
using trainyard::cuda_on_cpu::kSharedBytesReserved;
using trainyard::cuda_on_cpu::Lock;
using trainyard::cuda_on_cpu::Machine;

extern "C" {

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  return Call([&](Machine& machine, Lock&) {
    if (kernel == nullptr) {
      return cudaErrorInvalidDeviceFunction;
    }
    switch (attribute) {
      case cudaFuncAttributeMaxDynamicSharedMemorySize:
        if (value < 0 || value > trainyard::cuda_on_cpu::kSharedBytesOptIn) {
          return cudaErrorInvalidValue;
        }
        machine.dynamic_shared_limits[kernel] = value;
        return cudaSuccess;
      case cudaFuncAttributePreferredSharedMemoryCarveout:
        // This is only a hint, so nothing is done.
        return value >= -1 && value <= 100 ? cudaSuccess : cudaErrorInvalidValue;
      default:
        return cudaErrorInvalidValue;
    }
  });
}

// Counts as if a thread used 32 registers, which are never the limit.
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel,
                                                          int block_size, size_t dynamic_shared) {
  return Call([&](Machine& machine, Lock&) {
    if (blocks == nullptr || block_size < 1) {
      return cudaErrorInvalidValue;
    }
    *blocks = 0;
    if (block_size <= kMaxBlockThreads &&
        dynamic_shared <= static_cast<size_t>(DynamicSharedLimit(machine, kernel))) {
      *blocks = std::min({kMaxMultiprocessorBlocks, kMaxMultiprocessorThreads / block_size,
                          kSharedBytesOfMultiprocessor /
                              (static_cast<int>(dynamic_shared) + kSharedBytesReserved)});
    }
    return cudaSuccess;
  });
}

}  // extern "C"
