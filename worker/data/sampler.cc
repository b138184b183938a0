// Permutes the positions by a Feistel network, so that any of them can be looked up without a
// table.
#include "worker/data/sampler.h"

#include "common/base/check.h"
#include "worker/data/random.h"

namespace trainyard::data {

Sampler::Sampler(int64_t size, uint64_t seed, int64_t epoch) : size_(size), half_bits_(1) {
  TY_CHECK(size >= 1);
  // The domain is the smallest square of two halves that holds all positions. It has at most four
  // times `size` elements, so a walk takes at most four rounds of the network on average.
  while (half_bits_ < 32 && ((size - 1) >> (2 * half_bits_)) != 0) ++half_bits_;
  RandomStream random(Mix64(seed + kGolden) + static_cast<uint64_t>(epoch));
  for (uint64_t& key : keys_) key = random.Next();
}

int64_t Sampler::IndexAt(int64_t position) const {
  TY_CHECK(position >= 0 && position < size_);
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  auto value = static_cast<uint64_t>(position);
  // This is cycle walking: the network permutes a larger domain, and a result outside the range is
  // sent through again.
  do {
    uint64_t left = value >> half_bits_;
    uint64_t right = value & mask;
    for (const uint64_t key : keys_) {
      const uint64_t mixed = left ^ (Mix64(right + key) & mask);
      left = right;
      right = mixed;
    }
    value = left << half_bits_ | right;
  } while (value >= static_cast<uint64_t>(size_));
  return static_cast<int64_t>(value);
}

}  // namespace trainyard::data
