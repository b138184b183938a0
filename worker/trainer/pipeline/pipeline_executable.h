// One rank's stage of a pipeline, with its neighbours, behind the port of an executable. A stage is
// trained by the same calls as a whole model, and all ranks of the pipeline make them alike.
//
// A batch is cut into microbatches, and the stage goes through them as the schedule says: it
// receives what the stage before computed, computes, and sends. Gradients come back the other way.
// Messages leave while the stage goes on computing (parallel/stage_link.h).
//
// Parameters, their state, and the reduction are only those of the stage. Pipelines side by side
// sum the reductions of the same stage. Loss and accuracy are the whole model's on every rank.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/env.h"
#include "worker/engine/backend/backend.h"
#include "worker/parallel/group.h"
#include "worker/parallel/host_stage_link.h"
#include "worker/parallel/pipeline.h"
#include "worker/parallel/replicas.h"
#include "worker/parallel/stage_link.h"

namespace trainyard::trainer {

// The links to the neighbours of a stage. Null stands for a neighbour that does not exist.
struct PipelineLinks {
  std::unique_ptr<parallel::StageLink> before;
  std::unique_ptr<parallel::StageLink> after;
};

// The lines over host memory between a stage and a neighbour, and the groups that they connect.
struct NeighbourLines {
  parallel::HostLines host;
  parallel::Group receives;
  parallel::Group sends;
};
using MakeStageLink =
    std::function<absl::StatusOr<std::unique_ptr<parallel::StageLink>>(NeighbourLines lines)>;

// Connects a stage with its neighbours, the one before first, so that no two wait for each other.
// Stage s of the pipeline is rank first_rank + s of the gang. The groups are named
// "activations_<rank>" and "gradients_<rank>" after the rank of the stage before, which is rank 0
// in both. Both neighbours call `make` for their link at the same time.
absl::StatusOr<PipelineLinks> ConnectNeighbours(const parallel::ConnectGroup& connect,
                                                int first_rank, int stages, int stage,
                                                const MakeStageLink& make);

struct PipelineOptions {
  parallel::PipelineSchedule schedule = parallel::PipelineSchedule::k1F1B;
  int stages = 1;
  int stage = 0;
  int microbatches = 1;    // of one Accumulate; fewer if it has fewer rows
  int64_t batch_rows = 1;  // that one Accumulate gets at most
  int step_batches = 1;    // that one AccumulateAll gets at most
};

// Times of a step. They are those of the calls that compute, or if a device computes, those of its
// clock (engine::DeviceTimes).
struct PipelineTimes {
  absl::Duration total;
  absl::Duration computed;  // the part of it in computation; in the rest the stage waited
};

class PipelineExecutable final : public engine::Executable, public engine::RangeUpdate {
 public:
  // Rows of a batch, and their share of the global batch.
  struct Part {
    engine::Batch rows;
    double weight = 0;
  };
  // Called after Backward of a part, and its ready ranges.
  using PartDone = std::function<absl::Status(size_t part)>;

  // Cuts the model and compiles the stage. Returns INVALID_ARGUMENT for impossible cuts, and for
  // what depends on all gradients, of which a stage has only its own: clip_norm, and the loss scale
  // of f16. `options.max_rows` and microbatch_slots are set here, and `options.owned` is of the
  // stage's parameters. Before Connect the stage has a
  // state but cannot compute.
  static absl::StatusOr<std::unique_ptr<PipelineExecutable>> Create(
      engine::Backend& backend, const engine::Graph& model, absl::Span<const std::string> cuts,
      const engine::OptimizerSpec& optimizer, engine::CompileOptions options,
      const PipelineOptions& pipeline, Clock& clock);
  // The number of microbatches that the stage keeps at a time, which its links must have, too.
  int slots() const { return slots_; }
  // Returns the most floats that a message to or from a neighbour has.
  size_t message_floats() const;
  // Connects the stage. Call it once.
  void Connect(PipelineLinks links) { links_ = std::move(links); }

  // Returns the state of only this stage.
  const std::vector<engine::StateTensor>& state() const override { return stage_->state(); }
  absl::Status ReadState(size_t index, absl::Span<float> values) const override {
    return stage_->ReadState(index, values);
  }
  absl::Status WriteState(size_t index, absl::Span<const float> values) override {
    return stage_->WriteState(index, values);
  }

  // Computes through the whole pipeline, in microbatches.
  absl::Status Accumulate(const engine::Batch& batch, double weight,
                          const ReadyCallback& on_ready) override;
  // Computes several batches, each of which is one microbatch. No stage waits for the end of one
  // before it begins the next. `on_ready` is called for the last one. `done` may be empty.
  absl::Status AccumulateAll(absl::Span<const Part> parts, const ReadyCallback& on_ready,
                             const PartDone& done);

  absl::Span<float> reduction() override { return stage_->reduction(); }
  engine::MemoryKind memory_kind() const override { return stage_->memory_kind(); }
  void* device_queue() const override { return stage_->device_queue(); }
  absl::Status ReadReduction(absl::Span<float> sums) override {
    return stage_->ReadReduction(sums);
  }
  absl::Status WriteReduction(absl::Span<const float> sums) override {
    return stage_->WriteReduction(sums);
  }
  absl::Status Synchronize() override { return stage_->Synchronize(); }
  void set_wait_watch(engine::WaitWatch watch) override {
    stage_->set_wait_watch(std::move(watch));
  }
  void set_ready_ends(absl::Span<const int64_t> ends) override { stage_->set_ready_ends(ends); }
  engine::SumSlots* sum_slots() override { return stage_->sum_slots(); }
  engine::RangeUpdate* range_update() override {
    return stage_->range_update() == nullptr ? nullptr : this;
  }
  SharedLayout shared_layout() const override { return stage_->shared_layout(); }

  int max_updates_in_flight() const override { return stage_->max_updates_in_flight(); }
  absl::Status StartUpdate(double lr) override;
  absl::StatusOr<engine::StepMetrics> FinishUpdate() override;
  absl::Status BeginUpdate(double lr) override { return stage_->range_update()->BeginUpdate(lr); }
  absl::Status UpdateRange(int64_t begin, int64_t end) override {
    return stage_->range_update()->UpdateRange(begin, end);
  }
  absl::Status EndUpdate() override;
  absl::Span<float> parameters() override { return stage_->parameters(); }
  absl::Status CompleteStates(const CompleteState& complete, bool reads) override {
    return stage_->range_update()->CompleteStates(complete, reads);
  }
  absl::Status ExchangeAverages() override { return stage_->ExchangeAverages(); }

  // Evaluates. The last stage returns the sums, all others zeros.
  absl::StatusOr<engine::Evaluation> Evaluate(const engine::Batch& batch) override;
  absl::StatusOr<std::vector<float>> Predict(absl::Span<const float>) override {
    return absl::UnimplementedError("a stage of a pipeline has no logits of a whole model");
  }
  const engine::MemoryPlan& memory_plan() const override { return stage_->memory_plan(); }
  std::string MeasuredChoices() const override { return stage_->MeasuredChoices(); }
  std::vector<engine::Fallback> fallbacks() const override { return stage_->fallbacks(); }

  // Sets the timeout of every link. May be called between two other calls.
  void set_timeout(absl::Duration timeout);
  // Returns the times of the step whose update was finished last.
  const PipelineTimes& times() const { return finished_times_; }
  // Adds them up over all steps but the first, which compiles what it needs.
  struct Steps {
    int64_t count = 0;
    PipelineTimes times;
  };
  const Steps& measured_steps() const { return measured_; }

 private:
  struct Microbatch {
    engine::Batch batch;
    int64_t rows = 0;
    double weight = 0;
  };

  PipelineExecutable(const engine::Graph& model, const PipelineOptions& pipeline, Clock& clock);

  bool is_first() const { return pipeline_.stage == 0; }
  bool is_last() const { return pipeline_.stage + 1 == pipeline_.stages; }
  // Return the rows of the microbatches of an Accumulate, and of an evaluation, of so many rows.
  std::vector<parallel::RowRange> Microbatches(int64_t rows) const;
  std::vector<parallel::RowRange> EvaluatedParts(int64_t rows) const;
  absl::Status CompileTraining(int64_t rows) override;
  absl::Status CompileEvaluation(int64_t rows) override;
  int64_t RowsOf(const engine::Batch& batch) const;
  engine::Batch Slice(const engine::Batch& batch, int64_t first, int64_t rows) const;
  absl::Status Run(absl::Span<const Microbatch> microbatches, const ReadyCallback& on_ready,
                   const PartDone& done);
  absl::Status RunForward(const Microbatch& microbatch, int slot);
  absl::Status RunBackward(const Microbatch& microbatch, int slot, const ReadyCallback& on_ready);
  void AddComputed(absl::Duration start);
  // Say which neighbour was waited for.
  absl::Status FromBefore(const absl::Status& status) const;
  absl::Status FromAfter(const absl::Status& status) const;
  absl::Status EndStep();
  void NoteTimes();

  const PipelineOptions pipeline_;
  const int64_t row_elements_;
  const int64_t row_labels_;
  int64_t microbatch_rows_ = 1;
  int slots_ = 1;
  Clock& clock_;
  std::unique_ptr<engine::Executable> stage_;
  PipelineTimes times_;              // of the step that has begun, on the host
  std::deque<PipelineTimes> ended_;  // of steps whose update was not finished
  PipelineTimes finished_times_;
  bool has_finished_a_step_ = false;
  Steps measured_;
  PipelineLinks links_;  // which read and write the memory of the stage
};

// The parts of which the link between two stages on devices is made.
struct DeviceLinkRequest {
  PipelineExecutable& stage;
  NeighbourLines lines;
};

}  // namespace trainyard::trainer
