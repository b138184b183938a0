// The port between a compiled step and the hardware that runs it. `reference`, `cpu` and `cuda`
// implement it.
//
// One training step over all replicas:
//   for each hosted replica:  executable.Accumulate(its rows, rows / global_batch, on_ready)
//   communicator.AllReduce(executable.reduction())      sums over ranks, in buckets as they become
//   ready
//   executable.Update(lr)         parameters, running statistics; clears the reduction
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

struct CompileOptions {
  // Largest number of rows that Accumulate and Evaluate get; other sizes up to it are compiled when
  // met.
  int64_t max_rows = 1;
  // Threads of the backend; at least 1.
  int threads = 1;
  // FAILED_PRECONDITION where backend or machine lack it.
  Precision precision = Precision::kF32;
  PassOptions passes = {};
  // GPUs: the same bits each time, at the cost of engines that sum in any order.
  bool deterministic = true;
  // GPUs: a step is recorded once, and then launched as one graph.
  bool captures = true;
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
  // over max_rows or inputs of another size. `on_ready` may be empty; it is called for disjoint
  // ranges that cover the arena, in order of offset.
  virtual absl::Status Accumulate(const Batch& batch, double weight,
                                  const ReadyCallback& on_ready) = 0;

  // The reduction arena: gradients in the order in which backward produces them, then batch
  // statistics, loss and accuracy. The same layout on every rank of a backend, which on a device
  // may store a weight in another order than the port's. Zero after Update and at the start. Where
  // memory_kind() says so it is a device's memory, for a communicator that works there; what
  // Accumulate adds is there after Synchronize().
  virtual absl::Span<float> reduction() = 0;
  virtual MemoryKind memory_kind() const { return MemoryKind::kHost; }
  // A copy of it in the port's order, and back; for tests. `sums` has reduction().size() elements.
  virtual absl::Status ReadReduction(absl::Span<float> sums);
  virtual absl::Status WriteReduction(absl::Span<const float> sums);
  // Waits until the device has done all that it was told.
  virtual absl::Status Synchronize() { return absl::OkStatus(); }

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
  // Accumulate of the whole global batch and StartUpdate, as one launch where the device can.
  virtual absl::Status StartStep(const Batch& batch, double lr);

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
