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
  // Largest number of groups of rows of which batch_norm takes statistics; those of more than one
  // are [groups, C].
  int64_t max_groups = 1;
};

// Forward with batch statistics, and backward.
StepGraph BuildTrainingStep(const Graph& model, const StepOptions& options);
// Forward with running statistics, without dropout and label smoothing. The loss is the last node,
// so that logits come without labels.
StepGraph BuildEvaluationStep(const Graph& model, const StepOptions& options);

}  // namespace trainyard::engine
