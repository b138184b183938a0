// Finds out which layers of a stack read which, and the shape of what each gives. It is plain
// arithmetic, so a spec is refused where it is submitted, with all mistakes at once, and not where
// it trains.
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
  int64_t classes = 0;               // what the last layer gives; 0 where it is unknown
};

// Adds what does not fit to `violations`, at most a few dozen, under the path of the stack's
// LayersModel ("spec.model.layers"): names, `from`, shapes, layers that nothing reads. The plan may
// be used where nothing was added. Fields are taken to be within the rules of the proto file; of
// those that are not the shape is unknown, and nothing is said: who reads the spec says it.
StackPlan PlanStack(const Stack& stack, absl::string_view path,
                    std::vector<FieldViolation>& violations);

}  // namespace trainyard::layers
