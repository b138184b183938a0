// Defines what one rank shows the others of its host, in memory that all of them map. Only this
// folder uses it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace trainyard::parallel {

// Twice the logarithm of any possible number of replicas.
inline constexpr size_t kTermsMax = 64;
inline constexpr size_t kBallotMax = 64;

// The board of a rank. Each rank writes only its own board, except for `sleepers`. Members that are
// not atomic are written before the counter that announces them, and read after it. Counters grow
// over all steps and are never reset; a step adds one for each bucket.
struct RankBoard {
  // On a cache line of its own.
  alignas(64) std::atomic<uint32_t> changes = 0;  // of any counter; a futex
  std::atomic<uint32_t> left = 0;                 // 1: the rank will do nothing more
  // Buckets for which all of the rank's terms are final.
  std::atomic<uint64_t> ready = 0;
  // Buckets whose block the rank has summed and stored where it belongs.
  std::atomic<uint64_t> reduced = 0;
  // Buckets for which the rank has stored its block's parameters where they belong.
  std::atomic<uint64_t> shared = 0;
  std::atomic<uint64_t> gathered = 0;  // halves of GatherBlocks

  // The others write this.
  alignas(64) std::atomic<uint32_t> sleepers = 0;  // asleep on `changes`

  // Describes the step that `ready` counts, so that a disagreement between ranks on how to sum is
  // detected.
  alignas(64) uint64_t fingerprint = 0;
  int32_t terms = 0;
  int32_t term_slots[kTermsMax] = {};
  // The two are used in turns, since a slow rank may still read the last step's when the next one
  // begins.
  double ballots[2][kBallotMax] = {};
};

static_assert(std::atomic<uint64_t>::is_always_lock_free);

}  // namespace trainyard::parallel
