// Barriers, shuffles and votes under CUDA's names, which must be global and spelled as in CUDA.
#pragma once

#include <cstdint>
#include <cstring>
#include <source_location>
#include <type_traits>

#include "tests/testing/cuda_on_cpu/grid.h"

namespace trainyard::cuda_on_cpu {

template <class T>
T Shuffle(WarpKind kind, unsigned mask, T value, unsigned lane, int width,
          const std::source_location& where) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(uint64_t));
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = WaitForWarp({.kind = kind,
                      .mask = mask,
                      .value = bits,
                      .value_bytes = sizeof(T),
                      .lane = lane,
                      .width = static_cast<unsigned>(width),
                      .where = where});
  T result = value;
  std::memcpy(&result, &bits, sizeof(T));
  return result;
}

inline unsigned Ballot(unsigned mask, bool predicate, const std::source_location& where) {
  return static_cast<unsigned>(WaitForWarp(
      {.kind = WarpKind::kBallot, .mask = mask, .value = predicate ? 1U : 0U, .where = where}));
}

}  // namespace trainyard::cuda_on_cpu

inline void __syncthreads(const std::source_location& where = std::source_location::current()) {
  trainyard::cuda_on_cpu::WaitForBlock(trainyard::cuda_on_cpu::BarrierKind::kSync, true, where);
}
inline int __syncthreads_count(
    int predicate, const std::source_location& where = std::source_location::current()) {
  return trainyard::cuda_on_cpu::WaitForBlock(trainyard::cuda_on_cpu::BarrierKind::kCount,
                                              predicate != 0, where);
}
inline int __syncthreads_and(int predicate,
                             const std::source_location& where = std::source_location::current()) {
  return trainyard::cuda_on_cpu::WaitForBlock(trainyard::cuda_on_cpu::BarrierKind::kAnd,
                                              predicate != 0, where);
}
inline int __syncthreads_or(int predicate,
                            const std::source_location& where = std::source_location::current()) {
  return trainyard::cuda_on_cpu::WaitForBlock(trainyard::cuda_on_cpu::BarrierKind::kOr,
                                              predicate != 0, where);
}

inline void __syncwarp(unsigned mask = 0xFFFFFFFF,
                       const std::source_location& where = std::source_location::current()) {
  trainyard::cuda_on_cpu::WaitForWarp(
      {.kind = trainyard::cuda_on_cpu::WarpKind::kSync, .mask = mask, .where = where});
}
inline unsigned __ballot_sync(unsigned mask, int predicate,
                              const std::source_location& where = std::source_location::current()) {
  return trainyard::cuda_on_cpu::Ballot(mask, predicate != 0, where);
}
inline int __any_sync(unsigned mask, int predicate,
                      const std::source_location& where = std::source_location::current()) {
  return trainyard::cuda_on_cpu::Ballot(mask, predicate != 0, where) != 0 ? 1 : 0;
}
inline int __all_sync(unsigned mask, int predicate,
                      const std::source_location& where = std::source_location::current()) {
  return trainyard::cuda_on_cpu::Ballot(mask, predicate != 0, where) == mask ? 1 : 0;
}

template <class T>
T __shfl_sync(unsigned mask, T value, int lane, int width = 32,
              const std::source_location& where = std::source_location::current()) {
  return trainyard::cuda_on_cpu::Shuffle(trainyard::cuda_on_cpu::WarpKind::kShuffle, mask, value,
                                         static_cast<unsigned>(lane), width, where);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned distance, int width = 32,
                 const std::source_location& where = std::source_location::current()) {
  return trainyard::cuda_on_cpu::Shuffle(trainyard::cuda_on_cpu::WarpKind::kShuffleUp, mask, value,
                                         distance, width, where);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned distance, int width = 32,
                   const std::source_location& where = std::source_location::current()) {
  return trainyard::cuda_on_cpu::Shuffle(trainyard::cuda_on_cpu::WarpKind::kShuffleDown, mask,
                                         value, distance, width, where);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32,
                  const std::source_location& where = std::source_location::current()) {
  return trainyard::cuda_on_cpu::Shuffle(trainyard::cuda_on_cpu::WarpKind::kShuffleXor, mask, value,
                                         static_cast<unsigned>(lane_mask), width, where);
}

// Threads take turns on one thread of the host, so all see what one writes.
inline void __threadfence_block() {}
inline void __threadfence() {}
inline void __threadfence_system() {}
