// Defines a compiled step of the reference backend: a step graph that is run node by node, in
// floats or in doubles.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "worker/engine/backend/backend.h"
#include "worker/engine/backend/rank_statistics.h"
#include "worker/engine/backend/reference/updater.h"
#include "worker/engine/backend/state_table.h"

namespace trainyard::engine {

// The places of a step graph's values. Those of the largest batch also serve smaller ones.
struct Placement {
  ValueLifetimes lifetimes;
  ArenaLayout arena;
};

template <class T>
class ReferenceExecutable final : public Executable,
                                  public SumSlots,
                                  public RangeUpdate,
                                  public PipelineStage {
 public:
  ReferenceExecutable(const Graph& model, const OptimizerSpec& optimizer,
                      const CompileOptions& options, Backing backing)
      : options_(options),
        model_(model),
        training_(BuildTrainingStep(model, {options.passes, options.inspect, options.max_groups})),
        evaluation_(BuildEvaluationStep(model, {options.passes, options.inspect})),
        layout_(LayOutReduction(training_)),
        table_(BuildStateTable(model, layout_, optimizer)),
        updater_(optimizer, table_, layout_.gradient_elements, backing),
        training_place_(Place(training_, options.max_rows)),
        evaluation_place_(Place(evaluation_, options.max_rows)),
        ranks_(options) {
    parameters_ = AlignedBuffer(layout_.gradient_elements * kElement, backing);
    statistics_ = AlignedBuffer(layout_.statistic_elements * kElement, backing);
    reduction_ = AlignedBuffer(layout_.size * int64_t{sizeof(float)}, backing);
    for (int slot = 0; slot < options.sum_slots; ++slot) {
      sums_.emplace_back(layout_.size * int64_t{sizeof(float)}, backing);
    }
    // Parameter gradients, before they are added to the arena.
    gradients_ = AlignedBuffer(layout_.gradient_elements * kElement, backing);
    for (int i = 0; i < std::max(1, options.microbatch_slots); ++i) AddSlot(backing);
    plan_.parameters = parameters_.bytes() + statistics_.bytes();
    plan_.optimizer = updater_.state().bytes();
    plan_.gradients = reduction_.bytes() * (options.sum_slots + 1);
    plan_.workspace = gradients_.bytes();
    int64_t unshared = 0;
    for (const Lifetime& lifetime : training_place_.lifetimes.lifetimes) {
      unshared += AlignUp(lifetime.bytes);
    }
    for (const Slot& slot : microbatches_) {
      plan_.activations += slot.arena.bytes() + slot.boundary_bytes();
      plan_.activations_unshared += unshared + slot.boundary_bytes();
      plan_.workspace += slot.inputs.bytes();
    }
  }

  SumSlots* sum_slots() override { return this; }
  RangeUpdate* range_update() override { return updater_.updates_ranges() ? this : nullptr; }
  PipelineStage* pipeline_stage() override { return this; }
  const std::vector<StateTensor>& state() const override { return table_.tensors; }
  absl::Status ReadState(size_t index, absl::Span<float> values) const override;
  absl::Status WriteState(size_t index, absl::Span<const float> values) override;
  absl::Status Accumulate(const Batch& batch, double weight,
                          const ReadyCallback& on_ready) override;
  absl::Status TakePartInStatistics(const ReadyCallback& on_ready) override;
  absl::Span<float> reduction() override {
    return {reduction_.as<float>(), static_cast<size_t>(layout_.size)};
  }
  absl::Span<float> sums(int slot) override {
    TY_CHECK(slot >= 0 && slot < options_.sum_slots);
    return {sums_[static_cast<size_t>(slot)].as<float>(), static_cast<size_t>(layout_.size)};
  }
  absl::Status StoreSums(int slot) override;
  absl::Status AddSums(int slot, int64_t begin, int64_t end) override;
  Boundary boundary(int slot, int64_t rows) override;
  absl::Status Forward(const Batch& batch, int64_t rows, int slot) override;
  absl::Status Backward(const Batch& batch, int64_t rows, int slot, double weight,
                        const ReadyCallback& on_ready) override;
  absl::StatusOr<Evaluation> EvaluateStage(const Batch& batch, int64_t rows) override;
  absl::Status StartUpdate(double lr) override;
  absl::Status BeginUpdate(double lr) override;
  absl::Status UpdateRange(int64_t begin, int64_t end) override;
  absl::Status EndUpdate() override;
  absl::Span<float> parameters() override;
  absl::Status CompleteStates(const CompleteState& complete, bool reads) override;
  absl::StatusOr<StepMetrics> FinishUpdate() override { return updated_; }
  absl::Status ExchangeAverages() override;
  absl::StatusOr<Evaluation> Evaluate(const Batch& batch) override;
  absl::StatusOr<std::vector<float>> Predict(absl::Span<const float> inputs) override;
  absl::StatusOr<Inspection> Inspect() const override;
  const MemoryPlan& memory_plan() const override { return plan_; }
  CompilePlan Planned() const {
    CompilePlan plan{.memory = plan_};
    for (const Node& node : training_.graph.nodes) {
      ++plan.calls[std::string(OpName(node.op))];
    }
    return plan;
  }

 private:
  static constexpr int64_t kElement = sizeof(T);

  static Placement Place(const StepGraph& step, int64_t rows) {
    Placement placement;
    placement.lifetimes = ComputeLifetimes(step, rows, kElement);
    placement.arena = PlanArena(placement.lifetimes.lifetimes);
    return placement;
  }

  T* Pointer(const StepGraph& step, const Placement& placement, ValueId id) const;
  T* StateMemory(size_t index) const;
  // Adds the batch's statistics to the reduction, each group's weighted by its rows.
  void FoldStatistics(const Batch& batch, int64_t rows, double weight);
  // The memory that a microbatch keeps from Forward to Backward. There is a single one if there are
  // no microbatches.
  struct Slot {
    AlignedBuffer arena;
    AlignedBuffer inputs;  // as T
    // The boundary values, in floats.
    AlignedBuffer stage_inputs, stage_outputs, input_gradients, output_gradients;
    int64_t rows = 0;  // the rows of a Forward that is kept; 0 means none

    int64_t boundary_bytes() const {
      return stage_inputs.bytes() + stage_outputs.bytes() + input_gradients.bytes() +
             output_gradients.bytes();
    }
  };
  void AddSlot(Backing backing);
  // Runs nodes [begin, end) in the slot, for `rows` rows, and calls done(node) after each.
  struct Range {
    size_t begin = 0;
    size_t end = 0;
  };
  template <class Done>
  absl::Status Run(const StepGraph& step, const Placement& placement, Range nodes, int64_t rows,
                   const Batch& batch, double gradient_scale, const Done& done);
  // Runs the nodes from `begin` on, and adds what they and the batch's metrics give to the
  // reduction.
  absl::Status RunToReduction(size_t begin, int64_t rows, const Batch& batch, double weight,
                              const ReadyCallback& on_ready);
  // Works in the slot from now on.
  void EnterSlot(int slot) { slot_ = &microbatches_[static_cast<size_t>(slot)]; }
  void LoadInputs(absl::Span<const float> inputs) {
    std::copy(inputs.begin(), inputs.end(), slot_->inputs.template as<T>());
  }
  void LoadStageInputs(const Batch& batch, int64_t rows) {
    const float* inputs =
        model_.has_stage_input ? slot_->stage_inputs.template as<float>() : batch.inputs.data();
    LoadInputs({inputs, static_cast<size_t>(rows * ElementCount(model_.input_shape()))});
  }
  Evaluation Judge(absl::Span<const int32_t> labels) const;

  const CompileOptions options_;
  const Graph model_;
  const StepGraph training_;
  const StepGraph evaluation_;
  const ReductionLayout layout_;
  const StateTable table_;
  reference::Updater<T> updater_;
  const Placement training_place_;
  const Placement evaluation_place_;
  AlignedBuffer parameters_, statistics_;
  AlignedBuffer reduction_, gradients_;
  std::vector<Slot> microbatches_;
  Slot* slot_ = nullptr;  // the slot in use
  std::vector<AlignedBuffer> sums_;
  RankStatistics ranks_;
  MemoryPlan plan_;
  int64_t last_rows_ = 0;
  StepMetrics updated_;  // of the last update
};

extern template class ReferenceExecutable<float>;
extern template class ReferenceExecutable<double>;

}  // namespace trainyard::engine
