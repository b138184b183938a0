// Infers the shape of a layer's output from the shapes of its inputs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/layers/stack.h"

namespace trainyard::layers {

// The shape of an image [channels, height, width], a flat value [features] or a sequence
// [positions, features]. It is empty if it is unknown because of a mistake.
using Shape = std::vector<int64_t>;

// A value that a layer reads.
struct Source {
  std::string name;
  Shape shape;             // empty if unknown
  bool is_tokens = false;  // true for the sample of a network over tokens, [T] numbers
};

// The output of a layer, and its mistake. The mistake is the end of a sentence that begins with the
// layer, and is empty if all fits. The output may be known in spite of a mistake, so that more
// mistakes can be found.
struct Shaped {
  Shape output;
  std::string mistake;
};

// `sources` has as many elements as the kind reads. If a source is unknown, so is the output, and
// there is no mistake.
Shaped ShapeOf(const Kind& kind, const std::vector<Source>& sources, int64_t vocabulary);

// Returns a shape as text: "[3, 32, 32]".
std::string ShapeText(const Shape& shape);
// Returns "an image", "a flat value" or "a sequence".
std::string Nature(const Shape& shape);

// Returns true if the shape is larger than allowed. Such shapes are refused, so that no size
// overflows later.
bool IsTooLarge(const Shape& shape);

}  // namespace trainyard::layers
