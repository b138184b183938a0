// Compares the backend under test in bf16 and f16 with the reference in double precision.
#pragma once

#include "worker/engine/backend/backend.h"
#include "worker/engine/graph/graph.h"
#include "worker/engine/graph/step_graph.h"

namespace trainyard::engine::testing {

// Returns true if the backend under test supports the precision on this machine; otherwise its
// tests are skipped.
bool Has(Precision precision);

// Gradients, logits, loss, state after an update and predictions in bf16 or f16, each as a vector
// within a bound of its Euclidean norm: see bf16_testing.cc.
void CompareReduced(const Graph& model, int64_t rows, const PassOptions& passes,
                    Precision precision = Precision::kBf16);

}  // namespace trainyard::engine::testing
