// Defines the state of a compiled step on the CPU, and its programs by number of rows.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "dnnl.hpp"
#include "worker/engine/backend/backend.h"
#include "worker/engine/backend/cpu/compiler.h"
#include "worker/engine/backend/cpu/exchanged_memory.h"
#include "worker/engine/backend/cpu/packed_weights.h"
#include "worker/engine/backend/cpu/program.h"
#include "worker/engine/backend/cpu/updater.h"
#include "worker/engine/backend/state_table.h"

namespace trainyard::engine::cpu {

// The time and arithmetic of one call of the training program.
struct CallProfile {
  std::string name;
  double seconds = 0;  // mean
  double flops = 0;
};

// Returns FAILED_PRECONDITION if this machine has no products of that precision.
absl::Status CheckPrecision(Precision precision);

class CpuExecutable final : public Executable,
                            public SumSlots,
                            public RangeUpdate,
                            public PipelineStage {
 public:
  // If only addresses back the memory, it can be planned, and nothing else.
  CpuExecutable(const Graph& model, const OptimizerSpec& optimizer, const CompileOptions& options,
                Backing backing);

  // Compiles the training and evaluation programs of max_rows, so that the memory plan is complete.
  // Returns INTERNAL if oneDNN refuses.
  absl::Status CompileLargest();

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
    return {exchanged_.reduction(), static_cast<size_t>(layout_.size)};
  }
  absl::Span<float> sums(int slot) override;
  absl::Status StoreSums(int slot) override;
  absl::Status AddSums(int slot, int64_t begin, int64_t end) override;
  SharedLayout shared_layout() const override { return exchanged_.shared_layout(); }
  absl::Status StartUpdate(double lr) override;
  absl::Status BeginUpdate(double lr) override;
  absl::Status UpdateRange(int64_t begin, int64_t end) override;
  absl::Status EndUpdate() override;
  absl::Span<float> parameters() override {
    return {exchanged_.parameters(), static_cast<size_t>(layout_.gradient_elements)};
  }
  absl::Status CompleteStates(const CompleteState& complete, bool reads) override;
  absl::StatusOr<StepMetrics> FinishUpdate() override { return updated_; }
  absl::Status ExchangeAverages() override;
  absl::StatusOr<Evaluation> Evaluate(const Batch& batch) override;
  absl::StatusOr<std::vector<float>> Predict(absl::Span<const float> inputs) override;
  absl::StatusOr<Inspection> Inspect() const override;
  Boundary boundary(int slot, int64_t rows) override;
  absl::Status Forward(const Batch& batch, int64_t rows, int slot) override;
  absl::Status Backward(const Batch& batch, int64_t rows, int slot, double weight,
                        const ReadyCallback& on_ready) override;
  absl::StatusOr<Evaluation> EvaluateStage(const Batch& batch, int64_t rows) override;
  const MemoryPlan& memory_plan() const override { return plan_; }
  // Returns the number of calls of the training program of max_rows, by op.
  std::map<std::string, int64_t> CallsByOp() const;
  StageBlocks stage_output() const {
    return {training_programs_.at(options_.max_rows)->stage_output_block,
            evaluation_programs_.at(options_.max_rows)->stage_output_block};
  }

  // Runs forward and backward `repeats` times and reports where the time goes. It adds to the
  // reduction.
  absl::StatusOr<std::vector<CallProfile>> Profile(const Batch& batch, int repeats);

 private:
  using Programs = std::map<int64_t, std::unique_ptr<Program>>;

  absl::Status CompileTraining(int64_t rows) override {
    return Prepare(training_, training_programs_, rows).status();
  }
  absl::Status CompileEvaluation(int64_t rows) override {
    return Prepare(evaluation_, evaluation_programs_, rows).status();
  }

  // Returns the program for this number of rows, which is compiled when it is first needed.
  absl::StatusOr<Program*> Prepare(const StepGraph& step, Programs& programs, int64_t rows);
  // Runs in the arena of the slot.
  absl::Status Run(Program& program, const float* inputs, size_t calls, RunState& state,
                   const ReadyCallback& on_ready, std::vector<double>* seconds, size_t first = 0,
                   int slot = 0);
  // Returns the state with which forward and backward of the batch begin.
  RunState TrainingState(const Batch& batch);
  // Runs the backward half, or all, and computes the parts of the reduction beside the gradients.
  absl::Status RunToReduction(Program& program, const float* inputs, size_t first, int slot,
                              int64_t rows, double weight, RunState& state,
                              const ReadyCallback& on_ready);
  // Adds the batch's statistics to the reduction, each group's weighted by its rows.
  void FoldStatistics(const Program& program, int64_t rows, double weight);
  void AddBoundaries();
  void GrowArenas(const Program& program);
  const float* InputsOf(const Batch& batch, int slot);
  void UpdatePlan();
  void FoldRunningStatistics();
  float* StatePointer(size_t index) const;

  const CompileOptions options_;
  const Backing backing_;
  const Graph model_;
  const StepGraph training_;
  const StepGraph evaluation_;
  const ReductionLayout layout_;
  const StateTable table_;
  Updater updater_;
  const ExchangedMemory exchanged_;
  AlignedBuffer statistics_;
  // There is one for each slot of a microbatch, or a single one if there are no slots.
  struct Slot {
    AlignedBuffer arena;
    // Values at the boundaries of the stage.
    AlignedBuffer inputs, outputs, input_gradients, output_gradients;
    // The rows of a Forward that is kept; 0 means none.
    int64_t rows = 0;
    RunState state;
  };
  std::vector<Slot> slots_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  PackedWeights weights_;
  RowGroups groups_;  // the groups of the last batch
  RankStatistics ranks_;
  Programs training_programs_;
  Programs evaluation_programs_;
  int64_t arena_bytes_ = 0;     // of each slot
  int64_t boundary_bytes_ = 0;  // of all slots
  MemoryPlan plan_;
  // If false, the reduction is clear, and the next Accumulate may overwrite it.
  bool has_sums_ = false;
  int64_t last_rows_ = 0;  // the rows of the last Accumulate while its values are in the arena
  double last_loss_ = 0;
  StepMetrics updated_;  // the metrics of the last update
};

}  // namespace trainyard::engine::cpu
