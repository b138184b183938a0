// The state of a compiled step on the CPU, and its programs by number of rows.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "dnnl.hpp"
#include "worker/engine/backend/backend.h"
#include "worker/engine/backend/cpu/compiler.h"
#include "worker/engine/backend/cpu/packed_weights.h"
#include "worker/engine/backend/cpu/program.h"
#include "worker/engine/backend/cpu/updater.h"
#include "worker/engine/backend/state_table.h"

namespace trainyard::engine::cpu {

// Time and arithmetic of one call of the training program.
struct CallProfile {
  std::string name;
  double seconds = 0;  // mean
  double flops = 0;
};

// FAILED_PRECONDITION where this machine has no products of that precision.
absl::Status CheckPrecision(Precision precision);

class CpuExecutable final : public Executable {
 public:
  // Of addresses alone it can be planned, and nothing else.
  CpuExecutable(const Graph& model, const OptimizerSpec& optimizer, const CompileOptions& options,
                Backing backing);

  // Training and evaluation programs of max_rows, so that the memory plan stands. INTERNAL where
  // oneDNN refuses.
  absl::Status CompileLargest();

  const std::vector<StateTensor>& state() const override { return table_.tensors; }
  absl::Status ReadState(size_t index, absl::Span<float> values) const override;
  absl::Status WriteState(size_t index, absl::Span<const float> values) override;
  absl::Status Accumulate(const Batch& batch, double weight,
                          const ReadyCallback& on_ready) override;
  absl::Span<float> reduction() override {
    return {reduction_memory_.as<float>(), static_cast<size_t>(layout_.size)};
  }
  absl::Status StartUpdate(double lr) override;
  absl::StatusOr<StepMetrics> FinishUpdate() override { return updated_; }
  absl::Status ExchangeAverages() override;
  absl::StatusOr<Evaluation> Evaluate(const Batch& batch) override;
  absl::StatusOr<std::vector<float>> Predict(absl::Span<const float> inputs) override;
  absl::StatusOr<Inspection> Inspect() const override;
  Boundary boundary(int slot) override;
  absl::Status Forward(const Batch& batch, int64_t rows, int slot) override;
  absl::Status Backward(const Batch& batch, int64_t rows, int slot, double weight,
                        const ReadyCallback& on_ready) override;
  absl::StatusOr<Evaluation> EvaluateStage(const Batch& batch, int64_t rows) override;
  const MemoryPlan& memory_plan() const override { return plan_; }
  // Calls of the training program of max_rows, by op.
  std::map<std::string, int64_t> CallsByOp() const;
  StageBlocks stage_output() const {
    return {training_programs_.at(options_.max_rows)->stage_output_block,
            evaluation_programs_.at(options_.max_rows)->stage_output_block};
  }

  // Runs forward and backward `repeats` times and tells where the time goes. Adds to the reduction.
  absl::StatusOr<std::vector<CallProfile>> Profile(const Batch& batch, int repeats);

 private:
  using Programs = std::map<int64_t, std::unique_ptr<Program>>;

  // The program for so many rows, compiled when first met.
  absl::StatusOr<Program*> Prepare(const StepGraph& step, Programs& programs, int64_t rows);
  // In the arena of the slot.
  absl::Status Run(Program& program, const float* inputs, size_t calls, RunState& state,
                   const ReadyCallback& on_ready, std::vector<double>* seconds, size_t first = 0,
                   int slot = 0);
  // The backward half, or all, and what belongs to the reduction beside gradients.
  absl::Status RunToReduction(Program& program, const float* inputs, size_t first, int slot,
                              int64_t rows, double weight, RunState& state,
                              const ReadyCallback& on_ready);
  void FoldStatistics(const Program& program, int64_t rows, double weight);
  void AddBoundaries();
  void GrowArenas(const Program& program);
  const float* InputsOf(const Batch& batch, int slot);
  void UpdatePlan();
  float* StatePointer(size_t index) const;

  const CompileOptions options_;
  const Backing backing_;
  const Graph model_;
  const StepGraph training_;
  const StepGraph evaluation_;
  const ReductionLayout layout_;
  const StateTable table_;
  Updater updater_;
  AlignedBuffer parameters_, statistics_, reduction_memory_;
  // By slot of a microbatch; one where there are none.
  struct Slot {
    AlignedBuffer arena;
    AlignedBuffer inputs, outputs, input_gradients, output_gradients;  // of the boundary
    int64_t rows = 0;                                                  // of a Forward kept; 0: none
    RunState state;
  };
  std::vector<Slot> slots_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  PackedWeights weights_;
  Programs training_programs_;
  Programs evaluation_programs_;
  int64_t arena_bytes_ = 0;     // of each slot
  int64_t boundary_bytes_ = 0;  // of all slots
  MemoryPlan plan_;
  // False: the reduction is clear, and the next Accumulate may overwrite it.
  bool has_sums_ = false;
  int64_t last_rows_ = 0;  // of the last Accumulate while its values are in the arena
  double last_loss_ = 0;
  StepMetrics updated_;  // of the last update
};

}  // namespace trainyard::engine::cpu
