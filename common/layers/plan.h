// Finds out which layers of a stack read which others, and the shape of the output of each. This is
// plain arithmetic, so a wrong spec is refused when it is submitted, with all mistakes at once, and
// not when it trains.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/errors.h"
#include "common/layers/shapes.h"
#include "common/layers/stack.h"

namespace trainyard::layers {

inline constexpr int kSample = -1;

struct PlannedLayer {
  std::string name;         // never empty
  std::vector<int> inputs;  // indices of layers, or kSample
  Shape output;
};

struct StackPlan {
  std::vector<PlannedLayer> layers;  // one for each layer of the stack
  int64_t classes = 0;               // elements of the last layer's output; 0 if unknown
};

// Plans the stack. Adds what does not fit to `violations`, at most a few dozen, under the path of
// the stack's LayersModel ("spec.model.layers"): names, `from`, shapes, layers that nothing reads.
// The plan may be used if nothing was added. Fields are assumed to be within the rules of the proto
// file. If a field is not, the shape is unknown and no violation is added here, because the check
// of the rules adds one.
StackPlan PlanStack(const Stack& stack, absl::string_view path,
                    std::vector<FieldViolation>& violations);

}  // namespace trainyard::layers
