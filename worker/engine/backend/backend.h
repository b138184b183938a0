// The port between a compiled step and the hardware that runs it. `reference`, `cpu` and `cuda`
// implement it.
//
// One training step over all replicas:
//   for each hosted replica:  executable.Accumulate(its rows, rows / global_batch, on_ready)
//   parallel::GradientExchange    sums reduction() over ranks, in buckets as they become ready
//   BeginUpdate(lr), UpdateRange as buckets land, EndUpdate()    parameters, running statistics;
//   clears the reduction
// Everything that must agree between ranks travels in the reduction arena: gradients, batch
// statistics, loss and correct predictions. So the result does not depend on which rank hosts which
// replica.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/stored_row.h"
#include "worker/engine/graph/dropout.h"
#include "worker/engine/graph/graph.h"
#include "worker/engine/graph/memory_plan.h"
#include "worker/engine/graph/step_graph.h"
#include "worker/engine/optim/optimizer.h"

namespace trainyard::engine {

// Rows in host memory. inputs: [rows, elements of one input] row-major (NCHW), token numbers as
// floats too; labels: [rows], or [rows, T] of sequences, class numbers. `position` matters to
// models with dropout alone.
struct Batch {
  absl::Span<const float> inputs;
  absl::Span<const int32_t> labels;
  RandomPosition position = {};
  // In place of `inputs`, after Executable::StoreImages: [rows], made of the images stored; or,
  // where stored_pixels is not empty, row r of the batch's own image r.
  absl::Span<const StoredRow> stored = {};
  absl::Span<const uint8_t> stored_pixels = {};  // bytes [rows, C, H, W]
  // Rows of each replica, in order, adding up to the batch: batch norm takes its statistics over
  // each by itself, and they count by their rows. At most CompileOptions::max_groups where the
  // model has batch norm; evaluations do without. Empty: one group, all rows.
  absl::Span<const int64_t> groups = {};

  // Of models with one label a row; RowsOf (state_table.h) for all.
  int64_t rows() const { return static_cast<int64_t>(labels.size()); }
};

// A named tensor of the training state, in PyTorch's layout (OIHW convolutions, out x in linears).
struct StateTensor {
  enum class Kind { kParameter, kBuffer, kOptimizerSlot, kAverage };
  Kind kind = Kind::kParameter;
  // Parameter "conv1.weight", buffer "bn1.running_mean", slot "momentum.conv1.weight" or "step",
  // moving average "ema.conv1.weight".
  std::string name;
  Shape shape;
  Initializer initializer = {};  // of a parameter, or of a slot that does not begin with zeros
};
inline constexpr absl::string_view kAveragePrefix = "ema.";

// Sums over rows (and the positions of sequences); what several batches add up to.
struct Evaluation {
  double loss_sum = 0;
  int64_t correct = 0;
  int64_t rows = 0;  // labels judged
  int64_t top5 = 0;  // labels among the five largest logits; of equal ones the first come first
};

// What one step measured, over all ranks once the reduction has been reduced.
struct StepMetrics {
  // Mean over the global batch. NaN where a gradient was not finite: a rectifier may hide a NaN
  // from the loss for a while, but the parameters are spoiled.
  double loss = 0;
  double accuracy = 0;  // fraction in [0, 1]
};

// What activations and their gradients are stored and multiplied in. Sums, parameters and their
// gradients, statistics, loss and updates are f32 either way.
enum class Precision {
  kF32,
  kTf32,  // stored as f32, multiplied with 10 bits of mantissa (GPUs)
  kBf16,
  kF16,  // with a loss scale that follows the gradients (GPUs)
};
// "f32", "tf32", "bf16", "f16".
absl::string_view PrecisionName(Precision precision);

// 8-bit images, and what becomes of a byte: (byte / 255 - mean) / stddev, by channel.
struct ImageStore {
  absl::Span<const uint8_t> pixels;  // [count, C, H, W]; empty: batches bring their own
  absl::Span<const float> mean;      // [C]
  absl::Span<const float> stddev;
};

// Where the reduction arena lies.
enum class MemoryKind { kHost, kDevice };

// Sums `values` over the ranks, element by element, in place; host memory.
using SumOverRanks = std::function<absl::Status(absl::Span<double> values)>;

// In blocks of so many channels; 1: plain.
struct StageBlocks {
  int64_t training = 1;
  int64_t evaluation = 1;
};

struct CompileOptions {
  // Largest number of rows that Accumulate and Evaluate get; other sizes up to it are compiled when
  // met.
  int64_t max_rows = 1;
  // Largest number of Batch::groups.
  int64_t max_groups = 1;
  // Threads of the backend; at least 1.
  int threads = 1;
  // FAILED_PRECONDITION where backend or machine lack it.
  Precision precision = Precision::kF32;
  PassOptions passes = {};
  // GPUs: the same bits each time, at the cost of engines that sum in any order.
  bool deterministic = true;
  // GPUs: a step is recorded once, and then launched as one graph.
  bool captures = true;
  // Not null: batch norm takes its statistics, and its gradient's means, over the rows of all
  // ranks. Accumulate then calls it once for each batch_norm of the forward half, in order, and
  // once for each of the backward half, each time with as many values on every rank; a rank that
  // has no rows in a step makes the same calls by TakePartInStatistics. The calls come while other
  // sums of the step may be under way (`on_ready`): they need a channel of their own. An error of
  // the callback ends the call, and leaves sums behind that are worth nothing. Weights of a step
  // are each rank's share of the rows; then Batch::groups must be empty, and there are no
  // microbatch_slots.
  SumOverRanks sum_statistics = nullptr;
  // With it: this one of so many ranks. Each puts its moments into a slot of its own, so that all
  // merge the same numbers in the order of ranks, to the same bits.
  int statistics_rank = 0;
  int statistics_ranks = 1;
  // Buffers of StoreSums.
  int sum_slots = 0;
  // Memory of reduction(), sums() and parameters() is a file of its own that other processes can
  // map (shared_layout()), where a backend can.
  bool shares_memory = false;
  // Activations of so many microbatches are kept at a time, for Forward and Backward; 0: neither is
  // called.
  int microbatch_slots = 0;
  // CPU: how a stage's input lies while it is computed with; CompilePlan::stage_output of the stage
  // before, so that all stages together give the bits of the whole model.
  StageBlocks stage_input = {};
  // Makes Inspect() work and guards every buffer against writes beyond it; costs memory, time and
  // the gradient of the input. For tests.
  bool inspect = false;
};

// What the last Accumulate computed, before it was summed up.
struct Inspection {
  double loss = 0;             // mean over the batch
  std::vector<double> logits;  // training mode, [rows, classes] or [rows, T, classes]
  // Of weight times the mean loss, [rows, elements]; empty for tokens.
  std::vector<double> input_gradient;
};

// A compiled step and its state. Not thread-safe; the callback runs on the caller's thread.
class Executable {
 public:
  // [offset, offset + count) of reduction() holds its final local sum.
  using ReadyCallback = std::function<void(int64_t offset, int64_t count)>;

  virtual ~Executable() = default;

  // All state in a fixed order: parameters in graph order, buffers, optimizer slots, moving
  // averages.
  virtual const std::vector<StateTensor>& state() const = 0;
  // `values` has the tensor's number of elements; index into state().
  virtual absl::Status ReadState(size_t index, absl::Span<float> values) const = 0;
  virtual absl::Status WriteState(size_t index, absl::Span<const float> values) = 0;

  // Forward and backward in training mode; adds `weight` times the gradient of the batch's mean
  // loss (and the batch statistics, the loss and the accuracy, equally weighted) to the reduction
  // arena. INVALID_ARGUMENT for a label outside the classes, a token outside the vocabulary, rows
  // over max_rows, inputs of another size or groups that are not the batch's. `on_ready` may be
  // empty; it is called for disjoint ranges that cover the arena, in order of offset.
  virtual absl::Status Accumulate(const Batch& batch, double weight,
                                  const ReadyCallback& on_ready) = 0;

  // In the place of Accumulate, for a rank without rows where CompileOptions::sum_statistics: makes
  // the calls that Accumulate makes on the others, and adds nothing to the reduction.
  // FAILED_PRECONDITION without it.
  virtual absl::Status TakePartInStatistics();

  // The reduction arena: gradients in the order in which backward produces them, then batch
  // statistics, loss and accuracy. The same layout on every rank of a backend, which on a device
  // may store a weight in another order than the port's. Zero after Update and at the start. Where
  // memory_kind() says so it is a device's memory, for a communicator that works there; what
  // Accumulate adds is there after Synchronize().
  virtual absl::Span<float> reduction() = 0;
  virtual MemoryKind memory_kind() const { return MemoryKind::kHost; }
  // The queue on which the device does this executable's work, in order: for cuda a cudaStream_t.
  // Null where memory_kind() is kHost.
  virtual void* device_queue() const { return nullptr; }
  // A copy of it in the port's order, and back; for tests. `sums` has reduction().size() elements.
  virtual absl::Status ReadReduction(absl::Span<float> sums);
  virtual absl::Status WriteReduction(absl::Span<const float> sums);
  // Waits until the device has done all that it was told.
  virtual absl::Status Synchronize() { return absl::OkStatus(); }

  // Partial sums, for a fixed order of summation whatever a rank hosts. Slot numbers are below
  // CompileOptions::sum_slots; each slot has reduction().size() elements, in its order.
  virtual absl::Span<float> sums(int slot);
  // Moves reduction() to the slot: the next Accumulate begins with zeros.
  virtual absl::Status StoreSums(int slot);
  // reduction()[begin, end) = sums(slot)[begin, end) + reduction()[begin, end), element by element.
  virtual absl::Status AddSums(int slot, int64_t begin, int64_t end);
  // Names the memory of reduction() (bytes from 0), then of each slot, then of parameters(), each
  // aligned to a page; fd is -1 unless compiled with shares_memory, and on backends that cannot.
  // Lives as long as the executable.
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
  // order that depends on the model alone: the same bits on every rank.
  absl::StatusOr<StepMetrics> Update(double lr);
  // The same in two halves, so that a device need not wait for the host: starts an update, and
  // tells what the oldest one measured whose metrics were not taken yet. At most
  // max_updates_in_flight() may be started and not finished.
  virtual absl::Status StartUpdate(double lr) = 0;
  virtual absl::StatusOr<StepMetrics> FinishUpdate() = 0;
  virtual int max_updates_in_flight() const { return 1; }

  // StartUpdate in parts: Begin, then ranges as their sums are there, then End (statistics, loss,
  // count of steps), which clears the reduction. Ranges are disjoint, lie in [0,
  // parameters().size()), and need not cover it: what other ranks update is written to parameters()
  // by who receives it, before EndUpdate. Only where updates_ranges(); the same bits as
  // StartUpdate.
  virtual absl::Status BeginUpdate(double lr);
  virtual absl::Status UpdateRange(int64_t begin, int64_t end);
  virtual absl::Status EndUpdate();
  // Whether an element's update needs nothing of other elements: no norms of gradients or weights.
  virtual bool updates_ranges() const { return false; }
  // All parameters, each at the offset of its gradient in reduction(); zero between. Who writes to
  // it does so between BeginUpdate and EndUpdate. Empty where they are not kept as floats: then
  // every rank updates all of them.
  virtual absl::Span<float> parameters();
  // Slots of the optimizer and moving averages that lie as parameters() do, each
  // parameters().size() elements: what ranks that update ranges alone have of their ranges alone.
  virtual std::vector<absl::Span<float>> parameter_states();
  // Accumulate of the whole global batch and StartUpdate, as one launch where the device can.
  virtual absl::Status StartStep(const Batch& batch, double lr);

  // A stage of a pipeline (engine/graph/split.h), or a whole model, in microbatches; `slot` is
  // below CompileOptions::microbatch_slots and keeps the activations from Forward to Backward.
  // Backward adds to the reduction as Accumulate does. A stage that is not the first reads
  // inputs(slot) in the place of batch.inputs, written before Forward; one that is not the last
  // leaves outputs(slot) behind and reads output_gradients(slot), written before Backward; one that
  // is not the first leaves input_gradients(slot) behind. Each is [rows, elements of the boundary
  // value], row-major (NCHW), of the largest number of rows; labels may be empty where a stage has
  // no loss, `rows` then says how many.
  struct Boundary {
    absl::Span<float> inputs;
    absl::Span<float> outputs;
    absl::Span<float> input_gradients;
    absl::Span<float> output_gradients;
  };
  virtual Boundary boundary(int slot);
  virtual absl::Status Forward(const Batch& batch, int64_t rows, int slot);
  virtual absl::Status Backward(const Batch& batch, int64_t rows, int slot, double weight,
                                const ReadyCallback& on_ready);
  // Forward in evaluation mode, from inputs(0) to outputs(0); zeros where the stage has no loss.
  // Between steps: no slot keeps activations then.
  virtual absl::StatusOr<Evaluation> EvaluateStage(const Batch& batch, int64_t rows);

  // Keeps a copy of the images where they are computed on, for batches with `stored`, in place of
  // those kept before; memory_plan() counts them. UNIMPLEMENTED where the backend reads floats
  // alone; RESOURCE_EXHAUSTED for more than `bytes_max` bytes, or more than there is;
  // INVALID_ARGUMENT for a model whose input is no image of at most kStoredChannelsMax channels, or
  // pixels that are no number of its images. Then nothing is kept.
  virtual absl::Status StoreImages(const ImageStore& images, int64_t bytes_max);

  // Exchanges the parameters and their moving averages, so that Evaluate and Predict use these; a
  // second call exchanges them back, which must come before the next Accumulate. Running statistics
  // have no average and stay. FAILED_PRECONDITION where the optimizer keeps none.
  virtual absl::Status ExchangeAverages() = 0;

  // Forward in evaluation mode; touches no state.
  virtual absl::StatusOr<Evaluation> Evaluate(const Batch& batch) = 0;
  // Logits in evaluation mode, [rows, classes] or [rows, T, classes].
  virtual absl::StatusOr<std::vector<float>> Predict(absl::Span<const float> inputs) = 0;

  // FAILED_PRECONDITION unless compiled with `inspect`, or before the first Accumulate.
  virtual absl::StatusOr<Inspection> Inspect() const {
    return absl::FailedPreconditionError("compile with CompileOptions::inspect");
  }

  // Bytes by category, known before the first step. What smaller batches need is in it.
  virtual const MemoryPlan& memory_plan() const = 0;
};

// What a step would take, without compiling it for use.
struct CompilePlan {
  MemoryPlan memory;
  // Of kernels in a training step, by the name of the op; "reorder" where a backend changes
  // layouts.
  std::map<std::string, int64_t> calls;
  StageBlocks stage_output = {};  // see CompileOptions::stage_input

  int64_t total_calls() const;
};

// Thread-safe after construction.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual absl::string_view name() const = 0;
  // Runs shapes, autodiff, passes and the memory plan over the model's forward graph and makes it
  // executable. Parameters start at zero: initialise them with InitializeParameters
  // (models/initialize.h) or a checkpoint.
  virtual absl::StatusOr<std::unique_ptr<Executable>> Compile(const Graph& model,
                                                              const OptimizerSpec& optimizer,
                                                              const CompileOptions& options) = 0;
  // What Compile would hold, by the same way but without the memory: any size can be asked for.
  virtual absl::StatusOr<CompilePlan> Plan(const Graph& model, const OptimizerSpec& optimizer,
                                           const CompileOptions& options) = 0;
};

// `reference` (f32), `reference_f64`, `cpu`, or what was registered; NOT_FOUND with the known names
// otherwise.
absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(absl::string_view name);

// Makes a backend known that not every program holds. Before the first MakeBackend, by one thread.
using BackendFactory = std::function<absl::StatusOr<std::unique_ptr<Backend>>()>;
void RegisterBackend(absl::string_view name, BackendFactory factory);

}  // namespace trainyard::engine
