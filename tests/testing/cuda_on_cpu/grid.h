// Runs the threads of a kernel: block after block, each thread until it waits for others.
//
// Threads and blocks go in an order drawn from a seed, and a thread that waits at a barrier goes on
// at a drawn moment after the barrier is complete. What CUDA leaves undefined ends the process with
// a message that names the launch, the thread and the line.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <source_location>

namespace trainyard::cuda_on_cpu {

inline constexpr unsigned kWarpLanes = 32;

// Where the running thread of a kernel is.
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
  // Where the kernel was launched, for messages.
  std::source_location where;
  uint64_t seed = 1;
};

// Calls `thread` for each thread of the grid. A kernel that breaks CUDA's rules ends the process.
void RunGrid(const Grid& grid, const std::function<void()>& thread);

// What follows is called by threads of a running kernel alone.

// Shared memory of the running block, whose size the launch gave: full of 0xFF bytes at first.
void* DynamicShared();

enum class BarrierKind { kSync, kCount, kAnd, kOr };
// Waits for all threads of the block. Returns how the predicates were combined.
int WaitForBlock(BarrierKind kind, bool predicate, const std::source_location& where);

enum class WarpKind { kSync, kBallot, kShuffle, kShuffleUp, kShuffleDown, kShuffleXor };
struct WarpCall {
  WarpKind kind;
  // The lanes that take part, of which the caller is one.
  unsigned mask;
  // Bits of the value that is given; of a ballot 1 or 0.
  uint64_t value = 0;
  size_t value_bytes = 0;
  // The lane that is read, its distance, or what its number is combined with.
  unsigned lane = 0;
  // Lanes that form a group: a power of 2, at most 32.
  unsigned width = kWarpLanes;
  std::source_location where;
};
// Waits for the lanes of the mask, which must make the same call. Returns the bits read, or of a
// ballot a bit for each lane.
uint64_t WaitForWarp(const WarpCall& call);

}  // namespace trainyard::cuda_on_cpu
