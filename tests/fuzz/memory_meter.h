// Counts the memory that the process has allocated, in all threads.
#pragma once

#include <cstdint>

namespace trainyard::fuzz {

class MemoryMeter {
 public:
  // Begins to measure.
  static void Restart();
  // Returns the largest number of bytes that were allocated at a time since then, beyond those that
  // were allocated before.
  static int64_t Peak();
};

}  // namespace trainyard::fuzz
