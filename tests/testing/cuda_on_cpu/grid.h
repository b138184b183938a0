// Runs the threads of a kernel, block after block, each thread until it waits for others.
//
// Threads and blocks run in an order drawn from a seed. A thread that waits at a barrier continues
// at a drawn moment after the barrier is complete. What CUDA leaves undefined ends the process with
// a message that names the launch, the thread and the line.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <source_location>

namespace trainyard::cuda_on_cpu {

inline constexpr unsigned kWarpLanes = 32;

// The place of the running thread within its kernel.
struct Place {
  uint3 thread = {0, 0, 0};
  uint3 block = {0, 0, 0};
  dim3 block_size;
  dim3 grid_size;
};
extern constinit thread_local Place place;

struct Grid {
  dim3 grid_size;
  dim3 block_size;
  size_t dynamic_shared_bytes = 0;
  // The line that launched the kernel, for messages.
  std::source_location where;
  uint64_t seed = 1;
};

// Calls `thread` for each thread of the grid. The process ends if the kernel breaks CUDA's rules.
void RunGrid(const Grid& grid, const std::function<void()>& thread);

// Only threads of a running kernel call what follows.

// The shared memory of the running block, whose size the launch gave. At first all bytes are 0xFF.
void* DynamicShared();

// Ends the process if the address of a word of this many bytes is not a multiple of them.
void CheckAligned(const void* address, size_t bytes);

enum class BarrierKind { kSync, kCount, kAnd, kOr };
// Waits for all threads of the block. Returns the combination of the predicates.
int WaitForBlock(BarrierKind kind, bool predicate, const std::source_location& where);

enum class WarpKind { kSync, kBallot, kShuffle, kShuffleUp, kShuffleDown, kShuffleXor };
struct WarpCall {
  WarpKind kind;
  // The lanes that take part, including the caller.
  unsigned mask;
  // The bits of the value that the lane gives; 1 or 0 for a ballot.
  uint64_t value = 0;
  size_t value_bytes = 0;
  // The lane that is read, or its distance, or the number that its own is combined with.
  unsigned lane = 0;
  // The lanes that form a group: a power of 2, at most 32.
  unsigned width = kWarpLanes;
  std::source_location where;
};
// Waits for the lanes of the mask, which must make the same call. Returns the bits that were read,
// or for a ballot one bit for each lane.
uint64_t WaitForWarp(const WarpCall& call);

}  // namespace trainyard::cuda_on_cpu
