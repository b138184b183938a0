// Defines the state of a compiled step on a GPU, and its programs by number of rows.
//
// The host runs ahead of the device. A step is a copy of its batch on one stream and a graph on
// another; its results are read only when they are asked for. When a program runs for the first
// time, its calls are enqueued one by one, so that libraries load what they need. From the second
// time on it is launched as a graph.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "worker/engine/backend/backend.h"
#include "worker/engine/backend/cuda/compile_target.h"
#include "worker/engine/backend/cuda/device_timer.h"
#include "worker/engine/backend/cuda/packed_weights.h"
#include "worker/engine/backend/cuda/program.h"
#include "worker/engine/backend/cuda/rank_sums.h"
#include "worker/engine/backend/cuda/runtime/runtime.h"
#include "worker/engine/backend/cuda/runtime/waiter.h"
#include "worker/engine/backend/cuda/side_stream.h"
#include "worker/engine/backend/cuda/staging.h"
#include "worker/engine/backend/cuda/updater.h"
#include "worker/engine/backend/row_groups.h"
#include "worker/engine/backend/state_table.h"

namespace trainyard::engine::cuda {

// Finds plans and products on one device. All executables share it.
struct Planners {
  Fusions fusions = Fusions::kWhereFaster;
  double bytes_per_microsecond = 1e6;  // of the device's memory
  DeviceAllocator shared_memory = {};  // CudaBackendOptions::shared_memory
  std::unique_ptr<dnn::Planner> convolutions;
  std::unique_ptr<blas::MatmulPlanner> products;  // null if there is no device
};

class CudaExecutable final : public Executable,
                             public SumSlots,
                             public RangeUpdate,
                             public ImageMemory,
                             public PipelineStage {
 public:
  // With Backing::kAddresses it can be planned, and nothing else.
  static absl::StatusOr<std::unique_ptr<CudaExecutable>> Create(const Graph& model,
                                                                const OptimizerSpec& optimizer,
                                                                const CompileOptions& options,
                                                                std::shared_ptr<Planners> planners,
                                                                Backing backing);
  ~CudaExecutable() override;

  SumSlots* sum_slots() override { return this; }
  RangeUpdate* range_update() override { return updater_.updates_ranges() ? this : nullptr; }
  ImageMemory* image_memory() override { return this; }
  PipelineStage* pipeline_stage() override { return this; }
  const std::vector<StateTensor>& state() const override { return table_.tensors; }
  absl::Status ReadState(size_t index, absl::Span<float> values) const override;
  absl::Status WriteState(size_t index, absl::Span<const float> values) override;
  absl::Status Accumulate(const Batch& batch, double weight,
                          const ReadyCallback& on_ready) override;
  absl::Status TakePartInStatistics(const ReadyCallback& on_ready) override;
  absl::Status SumStatisticsBy(std::shared_ptr<DeviceSum> sum) override;
  absl::Span<float> reduction() override {
    return {reduction_.as<float>(), static_cast<size_t>(layout_.size)};
  }
  MemoryKind memory_kind() const override { return MemoryKind::kDevice; }
  void* device_queue() const override { return stream_.get(); }
  absl::Status ReadReduction(absl::Span<float> sums) override;
  absl::Status WriteReduction(absl::Span<const float> sums) override;
  absl::Status Synchronize() override { return Wait(); }
  void set_wait_watch(WaitWatch watch) override { waiter_.set_watch(std::move(watch)); }
  void set_ready_ends(absl::Span<const int64_t> ends) override;
  absl::Span<float> sums(int slot) override;
  absl::Status StoreSums(int slot) override;
  absl::Status AddSums(int slot, int64_t begin, int64_t end) override;
  absl::Status BeginUpdate(double lr) override;
  absl::Status UpdateRange(int64_t begin, int64_t end) override;
  absl::Status EndUpdate() override;
  absl::Span<float> parameters() override;
  absl::Status CompleteStates(const CompleteState& complete, bool reads) override;
  absl::Status StartUpdate(double lr) override;
  absl::StatusOr<StepMetrics> FinishUpdate() override;
  int max_updates_in_flight() const override { return kUpdatesInFlight; }
  absl::Status StartStep(const Batch& batch, double lr) override;
  absl::Status StoreImages(const ImageStore& images, int64_t bytes_max) override;
  absl::Status ExchangeAverages() override;
  absl::StatusOr<Evaluation> Evaluate(const Batch& batch) override;
  absl::StatusOr<std::vector<float>> Predict(absl::Span<const float> inputs) override;
  Boundary boundary(int slot, int64_t rows) override;
  absl::Status Forward(const Batch& batch, int64_t rows, int slot) override;
  absl::Status Backward(const Batch& batch, int64_t rows, int slot, double weight,
                        const ReadyCallback& on_ready) override;
  absl::StatusOr<Evaluation> EvaluateStage(const Batch& batch, int64_t rows) override;
  absl::Status BeginStep() override { return stage_timer_.BeginStep(stream_.get()); }
  DeviceTimes device_times() const override { return device_times_; }
  absl::StatusOr<Inspection> Inspect() const override;
  const MemoryPlan& memory_plan() const override { return plan_; }
  std::string MeasuredChoices() const override;
  std::vector<Fallback> fallbacks() const override {
    return {fallbacks_.begin(), fallbacks_.end()};
  }

  // Returns the number of calls of the training program for max_rows, by op.
  std::map<std::string, int64_t> CallsByOp() const;
  // Returns what the calls of that program and the update launch and move.
  std::vector<CallWork> StepWork() const;
  // Runs forward and backward, and returns the time of each call. Adds to the reduction.
  absl::StatusOr<std::vector<CallTime>> Profile(const Batch& batch);
  // Repeats the last step for measurements, as StartStep makes it, with the batch and the learning
  // rate that are still on the device. Returns FAILED_PRECONDITION if the last batch was not sent
  // for a step, or updates must be finished first.
  absl::Status RepeatStep();
  // Returns the number of nodes in the graph of a whole step with this many rows in one group, or 0
  // before it was captured.
  int64_t StepNodes(int64_t rows) const;

 private:
  using Programs = std::map<int64_t, std::unique_ptr<Program>>;

  absl::Status CompileTraining(int64_t rows) override {
    return Prepare(training_, training_programs_, rows).status();
  }
  absl::Status CompileEvaluation(int64_t rows) override {
    return Prepare(evaluation_, evaluation_programs_, rows).status();
  }
  // Identifies what a graph does, for a number of rows and, in training, of groups. The halves of a
  // step of a microbatch are recorded for each slot.
  enum class Work { kAccumulate, kAdd, kStep, kUpdate, kEvaluate };
  struct Recording {
    Work work = Work::kUpdate;
    int64_t rows = 0;
    int64_t groups = 1;
    // The calls of the program, or none where all of them are recorded with an update.
    size_t begin = 0;
    size_t end = 0;
    int slot = 0;
    friend auto operator<=>(const Recording&, const Recording&) = default;
  };
  // Orders fallbacks by what fell back. The reasons differ with the number of rows.
  struct ByLayer {
    bool operator()(const Fallback& a, const Fallback& b) const {
      return std::tie(a.layer, a.op) < std::tie(b.layer, b.op);
    }
  };
  struct Launch {
    bool has_run = false;
    std::array<CapturedGraph, Staging::kSlots> graphs;  // one for each place of the control
  };
  // The memory of a microbatch. Slot 0 also serves everything that is computed as a whole. The
  // boundaries are those of PipelineStage::boundary.
  struct Slot {
    DeviceBuffer arena;
    DeviceBuffer inputs, outputs, input_gradients, output_gradients;
    int64_t rows = 0;  // that Forward has left there for Backward
  };

  CudaExecutable(const Graph& model, const OptimizerSpec& optimizer, const CompileOptions& options,
                 std::shared_ptr<Planners> planners, Backing backing);
  absl::Status Allocate(const OptimizerSpec& optimizer);
  absl::StatusOr<Program*> Prepare(const StepGraph& step, Programs& programs, int64_t rows);
  // If there is no memory for a larger arena, `program` and all other programs are deleted.
  absl::Status BindArena(Program& program);
  // Gives all slots arenas of arena_bytes_, and keeps what Forward has left in them.
  absl::Status GrowArenas();
  void ReleaseArenas();
  int64_t BoundaryBytes(ValueId value, int64_t rows) const;
  absl::Status AllocateBoundaries();
  // Returns the bytes of all arenas and boundaries.
  int64_t SlotBytes() const;
  void BindSlot(Program& program, int slot) const;
  // Enqueues the half of a step of a microbatch.
  absl::Status RunHalf(const Recording& calls, Program& program, const ReadyCallback& on_ready);
  void UpdatePlan();
  // Adds the fallbacks of a program, and warns of those that are new.
  void NoteFallbacks(const Program& program);
  StepMemory Memory() const;

  absl::Status Check(const Batch& batch) const;
  // Returns the most bytes that the inputs of a batch take, in any of their forms.
  int64_t InputBytesMax() const;
  absl::Status Send(const Batch& batch, absl::Span<const int64_t> group_begins, double weight,
                    double lr);
  absl::Status RefreshWeights();
  // Sends a training batch, and returns the program that is to run on it.
  absl::StatusOr<Program*> SendForTraining(const Batch& batch, double weight, double lr);
  // A guarded step is checked after each call, so that its calls run one after the other.
  bool HasBranches() const { return options_.branches && !options_.inspect; }
  // Return the parameters of the calls of a training program, and of an evaluation, for what was
  // sent last.
  Enqueue Training(bool adds);
  Enqueue Evaluating() const;
  // Enqueues what `record` does. From the second time on it is launched as a graph, if graphs are
  // wanted.
  absl::Status Run(const Recording& recording, const std::function<absl::Status()>& record);
  // Returns whether the next sums overwrite the reduction or are added to it; from then on there
  // are sums.
  Work SumsWork();
  // Enqueues the calls, and tells of the sums that they make final.
  absl::Status RunCalls(Program& program, const Recording& calls, const Enqueue& how,
                        const ReadyCallback& on_ready);
  // Enqueues forward, backward and update of the batch that was sent.
  absl::Status RunStep(const Program& program, int64_t rows);
  absl::Status EnqueueUpdate();
  StepResults Results() const { return {results_.as<StepResult>(), kUpdatesInFlight}; }
  // Notes that the work on the stream so far ends an update, which has written its result.
  absl::Status MarkUpdate();
  // Waits for the stream. Statistics over all ranks are the only work on it that waits for other
  // ranks, whose deadline then bounds the wait.
  absl::Status Wait() const;
  // Waits for an evaluation of this many labels, and returns what it has found.
  absl::StatusOr<Evaluation> ReadEvaluation(int64_t labels) const;

  float* StatePointer(size_t index) const;
  // Returns true for a slot of which the device has only the ranges that this rank updates.
  bool IsDivided(size_t index) const;
  // Copies a divided slot to the ranges on the device. `values` are in the device's order.
  absl::Status CopyOwnedIn(int64_t offset, absl::Span<const float> values) const;
  absl::Status CompleteSlots(const CompleteState& complete, bool reads);
  absl::Status CopyBytesIn(void* to, const void* from, size_t bytes, absl::string_view what) const;
  absl::Status CopyIn(float* to, absl::Span<const float> values) const;
  absl::Status CopyOut(const float* from, absl::Span<float> values) const;
  absl::StatusOr<std::vector<float>> ReadLogits(const Program& program, int64_t rows) const;

  // The number of steps that may be enqueued at a time: one runs and one waits.
  static constexpr int kUpdatesInFlight = 2;
  static_assert(kUpdatesInFlight <= DeviceTimer::kEndedMax);

  const CompileOptions options_;
  const std::shared_ptr<Planners> planners_;
  const Backing backing_;
  const Graph model_;
  const StepGraph training_;
  const StepGraph evaluation_;
  const ReductionLayout layout_;
  StateTable table_;
  const Type type_;
  Waiter waiter_;
  Stream stream_;
  DeviceBuffer parameters_, statistics_, reduction_;
  std::vector<Slot> slots_;
  std::vector<DeviceBuffer> sums_;
  DeviceBuffer totals_, tickets_, loss_workspace_;
  SideStream side_;  // empty if there are no branches
  PackedWeights weights_;
  Updater updater_;
  // The divided slots of all ranks, in the device's order, as they are before the first update and
  // after CompleteStates; otherwise empty.
  std::vector<float> whole_slots_;
  Staging staging_;
  DeviceBuffer image_bytes_;
  StoredImages images_;  // from StoreImages; its pixels lie in image_bytes_
  std::optional<int64_t> images_count_;
  Programs training_programs_;
  Programs evaluation_programs_;
  std::map<Recording, Launch> launches_;
  std::vector<int64_t> ready_ends_;
  RowGroups groups_;  // of the last training batch
  RankSums ranks_;
  int64_t arena_bytes_ = 0;
  MemoryPlan plan_;
  std::set<Fallback, ByLayer> fallbacks_;  // of all programs
  // True if the parameters were changed by something other than an update.
  bool are_weights_stale_ = true;
  // If false, the reduction is clear, and the next Accumulate may overwrite it.
  bool has_sums_ = false;
  int64_t updated_elements_ = 0;  // how many elements the update that was begun has covered
  int64_t last_rows_ = 0;         // of the last Accumulate, while its values are in the arena
  PinnedBuffer results_;          // a StepResult for each update in flight, which the device writes
  std::array<Event, kUpdatesInFlight> updated_;
  DeviceTimer stage_timer_;  // of Forward and Backward
  DeviceTimes device_times_;
  std::deque<size_t> in_flight_;
  size_t next_result_ = 0;
};

}  // namespace trainyard::engine::cuda
