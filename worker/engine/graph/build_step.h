// Turns a model into what one training step or one evaluation computes.
#pragma once

#include <cstdint>

#include "worker/engine/graph/passes.h"
#include "worker/engine/graph/step_graph.h"

namespace trainyard::engine {

struct StepOptions {
  PassOptions passes = {};
  // Keeps the logits and takes the gradient with respect to the input (not to tokens), for tests.
  bool inspect = false;
  // The largest number of groups of rows of which batch_norm takes statistics. With more than one
  // group, they are [groups, C].
  int64_t max_groups = 1;
};

// Builds forward with batch statistics, and backward.
StepGraph BuildTrainingStep(const Graph& model, const StepOptions& options);
// Builds forward with running statistics, without dropout and label smoothing. The loss is the last
// node, so that logits can be computed without labels.
StepGraph BuildEvaluationStep(const Graph& model, const StepOptions& options);

}  // namespace trainyard::engine
