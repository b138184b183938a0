// Determines the order of samples as a pure function of (seed, epoch, position). An exact resume
// therefore needs no state, and the order does not depend on the number of devices.
#pragma once

#include <cstdint>

namespace trainyard::data {

// A pseudo-random permutation of [0, size) by a Feistel network with cycle walking (Black & Rogaway
// 2002, "Ciphers with arbitrary finite domains"), keyed by seed and epoch. It needs no memory, and
// O(1) expected time.
class Sampler {
 public:
  // size must be at least 1.
  Sampler(int64_t size, uint64_t seed, int64_t epoch);
  // Returns the index at a position, with 0 <= position < size.
  int64_t IndexAt(int64_t position) const;

 private:
  int64_t size_;
  int half_bits_;
  // There are eight rounds, because with four, small sizes favour some positions by a quarter.
  uint64_t keys_[8];
};

}  // namespace trainyard::data
