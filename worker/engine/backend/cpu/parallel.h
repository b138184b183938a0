// Runs a loop over threads, or inline if there is only one thread.
#pragma once

#include <cstdint>

namespace trainyard::engine::cpu {

// Calls body(i) for i in [0, count), in any order, on up to `threads` threads.
template <class Body>
void ParallelFor(int threads, int64_t count, const Body& body) {
  if (threads == 1 || count == 1) {
    for (int64_t i = 0; i < count; ++i) {
      body(i);
    }
    return;
  }
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t i = 0; i < count; ++i) {
    body(i);
  }
}

// Calls body(i, thread) for i in [0, count). Each thread has a consecutive share.
template <class Body>
void ParallelShares(int threads, int64_t count, const Body& body) {
  ParallelFor(threads, threads, [&](int64_t thread) {
    for (int64_t i = count * thread / threads; i < count * (thread + 1) / threads; ++i) {
      body(i, thread);
    }
  });
}

// Calls body(begin, count) for chunks of [0, count), which end at cache-line borders.
template <class Body>
void ParallelChunks(int threads, int64_t count, const Body& body) {
  constexpr int64_t kLine = 16;
  const int64_t lines = (count + kLine - 1) / kLine;
  const int64_t chunk = (lines + threads - 1) / threads * kLine;
  ParallelFor(threads, threads, [&](int64_t thread) {
    const int64_t begin = thread * chunk;
    const int64_t end = begin + chunk < count ? begin + chunk : count;
    if (begin < end) {
      body(begin, end - begin);
    }
  });
}

}  // namespace trainyard::engine::cpu
