// Defines the port to a stage of a pipeline (engine/graph/split.h), or to a whole model, that
// computes in microbatches, with separate calls for forward and backward.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "worker/engine/backend/batch.h"

namespace trainyard::engine {

// Times of a step, by the clock of the device that computes it.
struct DeviceTimes {
  absl::Duration total = {};     // from its begin to the end of the last Backward
  absl::Duration computed = {};  // the part of it in Forward and Backward
};

// A stage. `slot` is below CompileOptions::microbatch_slots and keeps the activations from Forward
// to Backward. Labels may be empty if the stage has no loss, so `rows` says how many rows there
// are.
//
// If Executable::memory_kind() is kDevice, calls return when their work is enqueued on
// device_queue(), and values at the boundaries are read and written in the order of that queue.
class PipelineStage {
 public:
  // The values at the boundaries. A stage that is not the first reads `inputs` instead of
  // Batch::inputs; they are written before Forward. It leaves `input_gradients` behind. A stage
  // that is not the last leaves `outputs` behind and reads `output_gradients`, which are written
  // before Backward. On the host each is [rows, elements of the boundary value], row-major (NCHW).
  // On a device it lies in the type and the layout in which stages compute, which two neighbours
  // of one backend and precision have in common; its size counts the bytes in floats.
  struct Boundary {
    absl::Span<float> inputs;
    absl::Span<float> outputs;
    absl::Span<float> input_gradients;
    absl::Span<float> output_gradients;
  };
  // Returns the values of this many rows, of 1 to CompileOptions::max_rows. They begin at the same
  // addresses for any number of rows.
  virtual Boundary boundary(int slot, int64_t rows) = 0;
  virtual absl::Status Forward(const Batch& batch, int64_t rows, int slot) = 0;
  // Adds to the reduction arena as Executable::Accumulate does.
  virtual absl::Status Backward(const Batch& batch, int64_t rows, int slot, double weight,
                                const ReadyCallback& on_ready) = 0;
  // Runs forward in evaluation mode, from boundary(0).inputs to boundary(0).outputs. The result is
  // zero if the stage has no loss. It is called between steps, when no slot keeps activations.
  virtual absl::StatusOr<Evaluation> EvaluateStage(const Batch& batch, int64_t rows) = 0;
  // Tells a device that measures its steps that one begins, before the first Forward. A step ends
  // with the start of its update.
  virtual absl::Status BeginStep() { return absl::OkStatus(); }
  // Returns the times of the step whose update was finished last. They are zero if Forward and
  // Backward compute before they return.
  virtual DeviceTimes device_times() const { return {}; }

 protected:
  ~PipelineStage() = default;
};

}  // namespace trainyard::engine
