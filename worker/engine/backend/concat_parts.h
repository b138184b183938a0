// The inputs of concatenations that may be written where they belong in the output.
#pragma once

#include <cstdint>
#include <map>

#include "worker/engine/graph/graph.h"

namespace trainyard::engine {

// A value that may lie within another one, from channel `first_channel` on.
struct ConcatPart {
  ValueId whole = kNoValue;
  int64_t first_channel = 0;
  // The greatest common divisor of the channels at which the inputs of the whole begin: a layout in
  // blocks of channels cuts no input only if their size divides it.
  int64_t divisor = 0;
};

// The graph says of each input whether it may be placed. A backend decides further, by its layouts.
std::map<ValueId, ConcatPart> PlacedParts(const Graph& graph);

}  // namespace trainyard::engine
