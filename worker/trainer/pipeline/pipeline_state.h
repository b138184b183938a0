// The state of a whole model, spread over the stages of a pipeline: in the order of an executable
// of the whole model, so that a checkpoint written by either goes on in the other.
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
  // Stages that have it: one, or all of what counts steps.
  std::vector<int> stages;
};

// Of a model cut before these layers. INVALID_ARGUMENT for impossible cuts.
absl::StatusOr<std::vector<StagedTensor>> StateOfStages(const engine::Graph& model,
                                                        absl::Span<const std::string> cuts,
                                                        const engine::OptimizerSpec& optimizer);

// Tensor by tensor, so that no rank but the one that keeps them holds more than one at a time.
// `pipeline` has a rank for each stage, in their order; all call it.
//
// Stage 0 gets each tensor, in order, by `take`; the others ignore theirs.
using TakeTensor = std::function<absl::Status(size_t index, std::vector<float> values)>;
absl::Status GatherState(const std::vector<StagedTensor>& tensors, const engine::Executable& stage,
                         parallel::Communicator& pipeline, const TakeTensor& take);
// Stage 0 brings each tensor by `give`, and who has it writes it.
using GiveTensor = std::function<absl::StatusOr<std::vector<float>>(size_t index)>;
absl::Status ScatterState(const std::vector<StagedTensor>& tensors, const GiveTensor& give,
                          parallel::Communicator& pipeline, engine::Executable& stage);

// Values of a whole model's state and nothing that computes: stands in for an executable of it
// where a checkpoint is written or read, or weights are initialised.
class HeldState final : public engine::Executable {
 public:
  // Zeros.
  explicit HeldState(const std::vector<StagedTensor>& tensors);

  const std::vector<engine::StateTensor>& state() const override { return tensors_; }
  absl::Status ReadState(size_t index, absl::Span<float> values) const override;
  absl::Status WriteState(size_t index, absl::Span<const float> values) override;

  // FAILED_PRECONDITION, all of them.
  absl::Status Accumulate(const engine::Batch&, double, const ReadyCallback&) override;
  absl::Span<float> reduction() override { return {}; }
  absl::Status StartUpdate(double) override;
  absl::StatusOr<engine::StepMetrics> FinishUpdate() override;
  absl::Status ExchangeAverages() override;
  absl::StatusOr<engine::Evaluation> Evaluate(const engine::Batch&) override;
  absl::StatusOr<std::vector<float>> Predict(absl::Span<const float>) override;
  const engine::MemoryPlan& memory_plan() const override { return plan_; }

 private:
  std::vector<engine::StateTensor> tensors_;
  std::vector<std::vector<float>> values_;
  engine::MemoryPlan plan_;
};

}  // namespace trainyard::trainer
