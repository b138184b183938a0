// Kernels for the tests of the emulated device. Some are right, and some break a rule of CUDA.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace trainyard::engine::cuda {

// Adds all of x to *sum, by shuffles, shared memory and an atomic. `threads` is a multiple of 32.
void Sum(const float* x, int64_t count, unsigned blocks, unsigned threads, float* sum,
         cudaStream_t stream);

// Computes counts[x[i] % bins] += 1. Many threads of a block add at once.
void Histogram(const unsigned* x, int count, int bins, unsigned* counts, cudaStream_t stream);

// Reverses x, one block of `threads` ints, through dynamic shared memory.
void Reverse(int* x, unsigned threads, cudaStream_t stream);
// Does the same without the barrier between writing and reading.
void ReverseWithoutBarrier(int* x, unsigned threads, cudaStream_t stream);
// Reverses with this much dynamic shared memory, which the kernel asks for if is_allowed.
void ReverseWithShared(int* x, unsigned threads, int shared_bytes, bool is_allowed,
                       cudaStream_t stream);

// Returns the values that the lanes of a warp get, 32 in a row: shuffle from lane 3, up 1, down 2,
// xor 5, shuffle of lane 1 in groups of 8, up 1 in groups of 8, down 1 in groups of 8, where values
// are 10
// * lane. Then the ballot of the odd lanes, any of lane 7, all of lane 7, and how many of the
// block's 64 threads are odd.
inline constexpr int kLaneRows = 11;
void Lanes(int* out, cudaStream_t stream);

// Gives the same double to all lanes, from lane 31.
void SpreadDouble(double* out, cudaStream_t stream);

// Computes x[i] = x[i] * factor + term, for `count` elements, whatever the size of the array.
void Scale(float* x, int count, float factor, float term, cudaStream_t stream);

// Each thread of the grid adds 1 to seen[2 * block], and its own number to seen[2 * block + 1].
void CountThreads(dim3 grid, dim3 block, unsigned* seen, cudaStream_t stream);

// Rounds x to bf16 and f16 and back, in kernels.
void RoundTrip(const float* x, int count, float* as_bf16, float* as_f16, cudaStream_t stream);

// Each of the following runs one block of 64 threads that breaks a rule.
enum class Mistake {
  // Thread 5 ends; the others wait at a barrier.
  kMissedBarrier,
  // Odd and even threads wait at different barriers.
  kTwoBarriers,
  // Lane 0 votes while the others shuffle.
  kTwoWarpCalls,
  // Lane 4 is not in the mask that it gives.
  kNotInMask,
  // Lane 9 ends; the others vote with it.
  kMissedVote,
  // Reads a lane that takes no part.
  kReadsOutsideMask,
  // Loads and stores two ints at once, at the address of the second one of an array.
  kMisalignedLoad,
  kMisalignedStore,
};
void MakeMistake(Mistake mistake, cudaStream_t stream);

}  // namespace trainyard::engine::cuda
