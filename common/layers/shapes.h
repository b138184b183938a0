// The shapes that each kind of layer gives for those that it reads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/layers/stack.h"

namespace trainyard::layers {

// An image [channels, height, width], a flat value [features], a sequence [positions, features];
// empty where it is unknown because of a mistake.
using Shape = std::vector<int64_t>;

// One value that a layer reads.
struct Source {
  std::string name;
  Shape shape;             // empty: unknown
  bool is_tokens = false;  // the sample of a network over tokens, [T] numbers
};

// The output of a layer, and its mistake: the end of a sentence that begins with the layer, empty
// if all fits. The output may be known in spite of a mistake, so that more can be found.
struct Shaped {
  Shape output;
  std::string mistake;
};

// `sources` has as many elements as the kind reads. Unknown sources give an unknown output and no
// mistake.
Shaped ShapeOf(const Kind& kind, const std::vector<Source>& sources, int64_t vocabulary);

// "[3, 32, 32]".
std::string ShapeText(const Shape& shape);
// "an image", "a flat value", "a sequence".
std::string Nature(const Shape& shape);

// Larger values are refused, so that no size overflows later.
bool IsTooLarge(const Shape& shape);

}  // namespace trainyard::layers
