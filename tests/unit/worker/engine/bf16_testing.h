// The cpu backend in bf16 against the reference in double precision.
#pragma once

#include "worker/engine/graph/graph.h"
#include "worker/engine/graph/step_graph.h"

namespace trainyard::engine::testing {

// Whether this machine multiplies bf16; tests of it are skipped elsewhere.
bool HasBf16();

// Gradients, logits, loss, state after an update and predictions, each as a vector within a bound
// of its Euclidean norm: see bf16_testing.cc.
void CompareBf16(const Graph& model, int64_t rows, const PassOptions& passes);

}  // namespace trainyard::engine::testing
