// Handles the state of a whole model that is spread over the stages of a pipeline. Its tensors are
// in the order of an executable of the whole model, so that a checkpoint of either can be read by
// the other.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/engine/backend/backend.h"
#include "worker/parallel/communicator.h"

namespace trainyard::trainer {

struct StagedTensor {
  engine::StateTensor tensor;
  // The stages that have it: one, or all if it counts steps.
  std::vector<int> stages;
};

// Lists the state of a model that is cut before these layers. Returns INVALID_ARGUMENT for
// impossible cuts.
absl::StatusOr<std::vector<StagedTensor>> StateOfStages(const engine::Graph& model,
                                                        absl::Span<const std::string> cuts,
                                                        const engine::OptimizerSpec& optimizer);

// Both functions move one tensor at a time, so that no rank but the one that keeps them holds more
// than one. `pipeline` has a rank for each stage, in their order. All stages call them.
//
// Stage 0 gets each tensor, in order, through `take`. The others ignore theirs.
using TakeTensor = std::function<absl::Status(size_t index, std::vector<float> values)>;
absl::Status GatherState(const std::vector<StagedTensor>& tensors, const engine::ModelState& stage,
                         parallel::Communicator& pipeline, const TakeTensor& take);
// Stage 0 brings each tensor through `give`, and the stages that have it write it.
using GiveTensor = std::function<absl::StatusOr<std::vector<float>>(size_t index)>;
absl::Status ScatterState(const std::vector<StagedTensor>& tensors, const GiveTensor& give,
                          parallel::Communicator& pipeline, engine::ModelState& stage);

// Holds the values of a whole model's state and computes nothing. It replaces an executable when a
// checkpoint is written or read, or weights are initialised.
class HeldState final : public engine::ModelState {
 public:
  // Begins with zeros.
  explicit HeldState(const std::vector<StagedTensor>& tensors);

  const std::vector<engine::StateTensor>& state() const override { return tensors_; }
  absl::Status ReadState(size_t index, absl::Span<float> values) const override;
  absl::Status WriteState(size_t index, absl::Span<const float> values) override;

 private:
  std::vector<engine::StateTensor> tensors_;
  std::vector<std::vector<float>> values_;
};

}  // namespace trainyard::trainer
