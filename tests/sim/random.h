// Provides the only source of chance: a seed gives one sequence, on every machine.
#pragma once

#include <cstdint>

namespace trainyard::sim {

// SplitMix64 (Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators").
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  // Returns a number in [0, n).
  int64_t Below(int64_t n) {
    return n <= 1 ? 0 : static_cast<int64_t>(Next() % static_cast<uint64_t>(n));
  }
  // Returns a number in [low, high].
  int64_t Between(int64_t low, int64_t high) { return low + Below(high - low + 1); }
  // Returns true this many times in a thousand.
  bool Chance(int64_t permille) { return Below(1000) < permille; }
  // Returns numbers with this mean, but never 0.
  int64_t Around(int64_t mean) { return Between(1, 2 * mean); }

 private:
  uint64_t state_;
};

}  // namespace trainyard::sim
