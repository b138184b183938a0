// Defines the random numbers of dropout, which every backend must draw alike.
#pragma once

#include <array>
#include <cstdint>

#include "worker/engine/graph/graph.h"
#include "worker/engine/graph/philox.h"

namespace trainyard::engine {

// The position of a batch in a training, from which its random numbers are derived.
struct RandomPosition {
  uint64_t seed = 0;
  int64_t step = 0;
  int64_t first_row = 0;  // of the batch, in the global batch
};

// This constant separates dropout's numbers from those of the initialisation with the same seed.
inline constexpr uint32_t kDropoutStream = 0x64726f70;

inline std::array<uint32_t, 2> DropoutKey(const RandomPosition& position) {
  return {static_cast<uint32_t>(position.seed),
          static_cast<uint32_t>(position.seed >> 32) ^ kDropoutStream};
}

// Returns the words of elements [4 block, 4 block + 4) of row `row` of the batch. Steps and rows
// count modulo 2^32.
inline PhiloxBlock DropoutWords(const RandomPosition& position, uint32_t layer, int64_t row,
                                int64_t block) {
  return Philox4x32(
      {static_cast<uint32_t>(block), layer, static_cast<uint32_t>(position.first_row + row),
       static_cast<uint32_t>(position.step)},
      DropoutKey(position));
}

// Returns the threshold: elements whose word is below it are dropped.
inline uint32_t DropoutThreshold(const DropoutAttributes& dropout) {
  return static_cast<uint32_t>(dropout.rate * 4294967296.0);
}

}  // namespace trainyard::engine
