// Finds the inputs of concatenations that may be written directly to their places in the output.
#pragma once

#include <cstdint>
#include <map>

#include "worker/engine/graph/graph.h"

namespace trainyard::engine {

// A value that may lie within another one, from channel `first_channel` on.
struct ConcatPart {
  ValueId whole = kNoValue;
  int64_t first_channel = 0;
  // The greatest common divisor of the channels at which the inputs of the whole begin. A layout in
  // blocks of channels cuts through no input only if the block size divides it.
  int64_t divisor = 0;
};

// Returns the inputs that the graph allows to be placed. A backend may place fewer, depending on
// its layouts.
std::map<ValueId, ConcatPart> PlacedParts(const Graph& graph);

}  // namespace trainyard::engine
