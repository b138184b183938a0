// Defines a compiled step and its state.
//
// One training step over all replicas:
//   for each hosted replica:  executable.Accumulate(its rows, rows / global_batch, on_ready)
//   parallel::GradientExchange    sums reduction() over ranks, in buckets as they become ready
//   RangeUpdate: BeginUpdate(lr), UpdateRange as buckets land, EndUpdate(). It updates parameters
//   and running statistics, and clears the reduction.
// Everything on which ranks must agree travels in the reduction arena: gradients, batch statistics,
// loss and correct predictions. Therefore the result does not depend on which rank hosts which
// replica.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "worker/engine/backend/batch.h"
#include "worker/engine/backend/device_sum.h"
#include "worker/engine/backend/image_memory.h"
#include "worker/engine/backend/model_state.h"
#include "worker/engine/backend/pipeline_stage.h"
#include "worker/engine/backend/range_update.h"
#include "worker/engine/backend/sum_slots.h"
#include "worker/engine/graph/memory_plan.h"

namespace trainyard::engine {

// Says where the reduction arena lies.
enum class MemoryKind { kHost, kDevice };

// The results of the last Accumulate, before they were summed.
struct Inspection {
  double loss = 0;             // mean over the batch
  std::vector<double> logits;  // training mode, [rows, classes] or [rows, T, classes]
  // The gradient of weight times the mean loss, [rows, elements]; empty for tokens.
  std::vector<double> input_gradient;
};

// A node that kernels of our own compute, since the library that should do it has no plan for it.
// They are correct, but may take many times as long.
struct Fallback {
  std::string layer = {};   // "block1.conv2"
  std::string op = {};      // "conv2d_input_gradient"
  std::string reason = {};  // what the library lacks, for people
};

// Returns "block1.conv2 conv2d_input_gradient: " and the reason.
std::string FallbackText(const Fallback& fallback);

// Called again and again while the host waits for a device, with the time that it has waited. An
// error ends the wait.
using WaitWatch = std::function<absl::Status(absl::Duration waited)>;

// An executable. It is not thread-safe; callbacks run on the caller's thread.
class Executable : public ModelState {
 public:
  using ReadyCallback = engine::ReadyCallback;

  // These are further ports, which not every executable has. Null means that it has none. They live
  // as long as the executable.
  virtual SumSlots* sum_slots() { return nullptr; }
  virtual RangeUpdate* range_update() { return nullptr; }
  virtual PipelineStage* pipeline_stage() { return nullptr; }
  virtual ImageMemory* image_memory() { return nullptr; }

  // Compiles the programs for these numbers of rows, each of 1 to max_rows, so that no Accumulate
  // or Evaluate has to do it. Backends that compile nothing by rows do nothing.
  absl::Status CompileRows(absl::Span<const int64_t> training,
                           absl::Span<const int64_t> evaluation);

  // Runs forward and backward in training mode. Adds `weight` times the gradient of the batch's
  // mean loss to the reduction arena, and likewise the batch statistics, the loss and the accuracy.
  // Returns INVALID_ARGUMENT for a label outside the classes, a token outside the vocabulary, more
  // rows than max_rows, inputs of another size, or groups that are not the batch's. `on_ready` may
  // be empty; it is called for disjoint ranges that cover the arena, in order of offset. A device
  // may tell an error of its own, of a lost rank, or of statistics over a single value only when
  // the host waits for it: in Synchronize, FinishUpdate, or where state or sums are read.
  virtual absl::Status Accumulate(const Batch& batch, double weight,
                                  const ReadyCallback& on_ready) = 0;

  // A rank without rows calls this instead of Accumulate if there is
  // CompileOptions::sum_statistics: it makes the calls that Accumulate makes on the other ranks,
  // and adds nothing to the reduction. It calls `on_ready` like Accumulate, and a device does so in
  // the same order between its sums. Returns FAILED_PRECONDITION without sum_statistics.
  virtual absl::Status TakePartInStatistics(const ReadyCallback& on_ready);
  // Lets the device sum statistics over the ranks by itself from here on, instead of by
  // CompileOptions::sum_statistics. Returns FAILED_PRECONDITION without sum_statistics, and if
  // memory_kind() is kHost.
  virtual absl::Status SumStatisticsBy(std::shared_ptr<DeviceSum> sum);

  // Returns the reduction arena: gradients in the order in which backward produces them, then batch
  // statistics, loss and accuracy. The layout is the same on every rank of a backend; a device may
  // store a weight in another order than the port's. It is zero at the start and after an update.
  // If memory_kind() says so, it is in a device's memory, for a communicator that works there; then
  // the results of Accumulate are there after Synchronize().
  virtual absl::Span<float> reduction() = 0;
  virtual MemoryKind memory_kind() const { return MemoryKind::kHost; }
  // Returns the queue on which the device does this executable's work, in order: for cuda a
  // cudaStream_t. It is null if memory_kind() is kHost.
  virtual void* device_queue() const { return nullptr; }
  // Copies the arena out in the port's order, and back in. `sums` has reduction().size() elements.
  virtual absl::Status ReadReduction(absl::Span<float> sums);
  virtual absl::Status WriteReduction(absl::Span<const float> sums);
  // Waits until the device has done all its work.
  virtual absl::Status Synchronize() { return absl::OkStatus(); }
  // Watches the waits for the device from now on, if there is one. A device that exchanges sums
  // with others waits for them. The watch may be empty.
  virtual void set_wait_watch(WaitWatch) {}
  // Tells that on_ready need not be called before one of these ends is reached, so that a device
  // can record what lies between them. Without ends it is called whenever a range is ready.
  virtual void set_ready_ends(absl::Span<const int64_t>) {}

  // Names the memory of reduction() (bytes from 0), then of each sum slot, then of parameters(),
  // each aligned to a page. `fd` is -1 unless compiled with shares_memory, and on backends that
  // cannot share. It lives as long as the executable.
  struct SharedLayout {
    int fd = -1;
    int64_t reduction_offset = 0;
    std::vector<int64_t> slot_offsets;
    int64_t parameters_offset = 0;
    int64_t bytes = 0;
  };
  virtual SharedLayout shared_layout() const { return {}; }

  // Applies the optimizer with this learning rate and folds the batch statistics into the running
  // ones. All norms are those of the reduced gradients and of the whole parameters, summed in an
  // order that depends only on the model, so that every rank gets the same bits.
  absl::StatusOr<StepMetrics> Update(double lr);
  // Does so in two halves, so that a device need not wait for the host. StartUpdate starts an
  // update. FinishUpdate returns what the oldest unfinished update measured. At most
  // max_updates_in_flight() may be started and not finished.
  virtual absl::Status StartUpdate(double lr) = 0;
  virtual absl::StatusOr<StepMetrics> FinishUpdate() = 0;
  virtual int max_updates_in_flight() const { return 1; }
  // Does Accumulate of the whole global batch and StartUpdate, as one launch if the device can do
  // that.
  virtual absl::Status StartStep(const Batch& batch, double lr);
  // Returns all parameters, each at the offset of its gradient in reduction(), with zeros between.
  // They may be written between BeginUpdate and EndUpdate. The result is empty if they are not kept
  // as floats; then every rank updates all of them.
  virtual absl::Span<float> parameters() { return {}; }

  // Exchanges the parameters and their moving averages, so that Evaluate and Predict use the
  // averages. A second call exchanges them back, and must come before the next Accumulate. Running
  // statistics have no average and stay. Returns FAILED_PRECONDITION if the optimizer keeps no
  // averages.
  virtual absl::Status ExchangeAverages() = 0;

  // Runs forward in evaluation mode. It changes no state.
  virtual absl::StatusOr<Evaluation> Evaluate(const Batch& batch) = 0;
  // Returns logits in evaluation mode, [rows, classes] or [rows, T, classes].
  virtual absl::StatusOr<std::vector<float>> Predict(absl::Span<const float> inputs) = 0;

  // Returns FAILED_PRECONDITION unless it was compiled with `inspect`, and before the first
  // Accumulate.
  virtual absl::StatusOr<Inspection> Inspect() const;

  // Returns the bytes by category, which are known before the first step. They include what smaller
  // batches need.
  virtual const MemoryPlan& memory_plan() const = 0;
  // Returns the choices among kernels that were measured for this executable, for
  // CompileOptions::choices of ranks with a device of the same type. It is empty on backends that
  // measure nothing.
  virtual std::string MeasuredChoices() const { return ""; }
  // Returns the fallbacks of everything that was compiled so far, each layer and op once.
  virtual std::vector<Fallback> fallbacks() const { return {}; }

 private:
  // Compile the program for one number of rows, unless that was done before.
  virtual absl::Status CompileTraining(int64_t) { return absl::OkStatus(); }
  virtual absl::Status CompileEvaluation(int64_t) { return absl::OkStatus(); }
};

}  // namespace trainyard::engine
