// Defines the port to a stage of a pipeline (engine/graph/split.h), or to a whole model, that
// computes in microbatches, with separate calls for forward and backward.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/engine/backend/batch.h"

namespace trainyard::engine {

// A stage. `slot` is below CompileOptions::microbatch_slots and keeps the activations from Forward
// to Backward. Labels may be empty if the stage has no loss, so `rows` says how many rows there
// are.
class PipelineStage {
 public:
  // The values at the boundaries. A stage that is not the first reads `inputs` instead of
  // Batch::inputs; they are written before Forward. It leaves `input_gradients` behind. A stage
  // that is not the last leaves `outputs` behind and reads `output_gradients`, which are written
  // before Backward. Each is [rows, elements of the boundary value], row-major (NCHW), for the
  // largest number of rows.
  struct Boundary {
    absl::Span<float> inputs;
    absl::Span<float> outputs;
    absl::Span<float> input_gradients;
    absl::Span<float> output_gradients;
  };
  virtual Boundary boundary(int slot) = 0;
  virtual absl::Status Forward(const Batch& batch, int64_t rows, int slot) = 0;
  // Adds to the reduction arena as Executable::Accumulate does.
  virtual absl::Status Backward(const Batch& batch, int64_t rows, int slot, double weight,
                                const ReadyCallback& on_ready) = 0;
  // Runs forward in evaluation mode, from boundary(0).inputs to boundary(0).outputs. The result is
  // zero if the stage has no loss. It is called between steps, when no slot keeps activations.
  virtual absl::StatusOr<Evaluation> EvaluateStage(const Batch& batch, int64_t rows) = 0;

 protected:
  ~PipelineStage() = default;
};

}  // namespace trainyard::engine
