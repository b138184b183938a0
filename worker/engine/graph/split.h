// Cuts the forward graph of a model into the stages of a pipeline, by pure functions.
//
// A stage is a graph like a model's, so that it is differentiated, improved and compiled like one.
// The first has the model's input, the last its labels and loss; between two stages one value
// crosses: it ends the first by a stage_output node, and is the input of the second, which takes
// the gradient with respect to it. Parameters keep their names, so what stages hold together is the
// state of the whole model.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/engine/graph/graph.h"

namespace trainyard::engine {

// A layer with which a stage can begin: exactly one value is made before it and read from it on,
// and no parameter is used on both sides. Therefore residual blocks and inception modules are not
// cut. A flatten goes with the layer after it.
struct CutPoint {
  size_t node = 0;  // the node of the model with which the stage begins
  std::string layer;
  ValueId value = kNoValue;  // the value that crosses
};
// Returns the possible cuts in the model's order. The first layer is none.
std::vector<CutPoint> PossibleCuts(const Graph& model);

// Splits a model. `cuts` are the first layers of stages 1, 2, ..., in the model's order; without
// cuts the result is the model itself. Returns INVALID_ARGUMENT with the layer, what is wrong with
// it, and the nearest layers that would do.
absl::StatusOr<std::vector<Graph>> SplitModel(const Graph& model,
                                              absl::Span<const std::string> cuts);

}  // namespace trainyard::engine
