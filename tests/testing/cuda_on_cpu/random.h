// The stream of choices that a seed stands for (SplitMix64; Steele, Lea and Flood, OOPSLA 2014).
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>

namespace trainyard::cuda_on_cpu {

// A generator for one thread.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    state_ += 0x9E3779B97F4A7C15;
    uint64_t mixed = state_;
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB;
    return mixed ^ (mixed >> 31);
  }
  // Returns a number in [0, end), where 0 < end.
  uint64_t Below(uint64_t end) { return Next() % end; }
  bool Coin() { return (Next() & 1) != 0; }

 private:
  uint64_t state_;
};

// Visits each number of [0, count) once, in an order with large jumps, without a table of them.
class Permutation {
 public:
  // `count` is below 2^32, so that no product overflows.
  Permutation(uint64_t count, Random& random)
      : count_(count), offset_(random.Below(count)), stride_(1 + random.Below(count)) {
    while (std::gcd(stride_, count_) != 1) {
      ++stride_;
    }
    stride_ %= count_;
    stride_ += count_ == 1 ? 1 : 0;
  }
  uint64_t At(uint64_t position) const { return (offset_ + position * stride_) % count_; }

 private:
  uint64_t count_;
  uint64_t offset_;
  uint64_t stride_;
};

}  // namespace trainyard::cuda_on_cpu
