// Makes random numbers that are a pure function of a key and a counter. Any sample can be made
// without those before it, and the numbers are the same on every machine.
#pragma once

#include <cstdint>

namespace trainyard::data {

// The increment of SplitMix64: 2^64 divided by the golden ratio, odd.
inline constexpr uint64_t kGolden = 0x9e3779b97f4a7c15U;

// The finalizer of SplitMix64 (Steele, Lea & Flood 2014, "Fast splittable pseudorandom number
// generators"): a bijection of 64 bits.
constexpr uint64_t Mix64(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

// The stream of one key. The arithmetic is exact: a multiplication by a power of two does not
// round.
class RandomStream {
 public:
  explicit RandomStream(uint64_t key) : state_(key) {}

  uint64_t Next() { return Mix64(state_ += kGolden); }
  // Returns a number in [0, 1) with 53 random bits.
  double Unit() { return static_cast<double>(Next() >> 11) * 0x1p-53; }
  // Returns a number in [low, high), up to rounding.
  double Between(double low, double high) { return low + (high - low) * Unit(); }
  // Returns a number in [0, bound). The bias is bound / 2^64.
  uint64_t Below(uint64_t bound) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(Next()) * bound) >> 64);
  }

 private:
  uint64_t state_;
};

}  // namespace trainyard::data
