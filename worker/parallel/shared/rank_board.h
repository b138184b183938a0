// What one rank shows the others of its host, in memory that all of them map. For this folder
// alone.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace trainyard::parallel {

// Twice the logarithm of any number of replicas.
inline constexpr size_t kTermsMax = 64;
inline constexpr size_t kBallotMax = 64;

// Each rank writes its own board alone, but for `sleepers`. What is no atomic is written before,
// and read after, the counter that says so. Counters grow for ever, over all steps; a step adds one
// for each bucket.
struct RankBoard {
  // On a cache line of its own.
  alignas(64) std::atomic<uint32_t> changes = 0;  // of any counter; a futex
  std::atomic<uint32_t> left = 0;                 // 1: it will do nothing more
  std::atomic<uint64_t> ready = 0;                // buckets of which all its terms are final
  std::atomic<uint64_t> reduced = 0;  // of which its block has been summed, and is where it belongs
  std::atomic<uint64_t> shared = 0;   // whose parameters of its block are where they belong
  std::atomic<uint64_t> gathered = 0;  // halves of GatherBlocks

  // Of the others.
  alignas(64) std::atomic<uint32_t> sleepers = 0;  // asleep on `changes`

  // Of the step that `ready` is about: ranks that disagree on how to sum are told.
  alignas(64) uint64_t fingerprint = 0;
  int32_t terms = 0;
  int32_t term_slots[kTermsMax] = {};
  // Used in turns: a slow rank may read the last step's when the next one begins.
  double ballots[2][kBallotMax] = {};
};

static_assert(std::atomic<uint64_t>::is_always_lock_free);

}  // namespace trainyard::parallel
