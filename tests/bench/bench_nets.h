// The networks that the benchmarks of training steps run, by name, and made-up batches for them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/engine/backend/backend.h"
#include "worker/engine/graph/graph.h"
#include "worker/engine/optim/optimizer.h"

namespace trainyard::engine {

// INVALID_ARGUMENT with the known names. torch_nets.py has the same in PyTorch.
absl::StatusOr<Graph> BuildBenchNet(absl::string_view net);

// The training of such a network: AdamW for sequences, SGD with momentum for everything else.
OptimizerSpec BenchOptimizer(const Graph& model);

// Returns a table by category, as text.
std::string RenderMemoryPlan(const MemoryPlan& plan);

// Fills the inputs with numbers from U(-1, 1) or with tokens, and adds labels: [rows, ...] as Batch
// says. The contents are the same each time.
struct MadeUpBatch {
  std::vector<float> inputs;
  std::vector<int32_t> labels;

  Batch batch() const { return {inputs, labels}; }
};
MadeUpBatch MakeUpBatch(const Graph& model, int64_t rows);

}  // namespace trainyard::engine
