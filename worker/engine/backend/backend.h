// Defines the port between a model's graph and the hardware that runs it. `reference`, `cpu` and
// `cuda` implement it.
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
#include "worker/engine/backend/executable.h"
#include "worker/engine/graph/build_step.h"
#include "worker/engine/graph/graph.h"
#include "worker/engine/graph/memory_plan.h"
#include "worker/engine/optim/optimizer.h"

namespace trainyard::engine {

// The type in which activations and their gradients are stored and multiplied. Sums, parameters and
// their gradients, statistics, loss and updates are f32 in each case.
enum class Precision {
  kF32,
  kTf32,  // stored as f32, multiplied with 10 bits of mantissa (GPUs)
  kBf16,
  kF16,  // with a loss scale that follows the gradients (GPUs)
};
// Returns "f32", "tf32", "bf16" or "f16".
absl::string_view PrecisionName(Precision precision);

// Sums `values`, which lie in host memory, over the ranks, element by element, in place.
using SumOverRanks = std::function<absl::Status(absl::Span<double> values)>;

// The number of channels in a block of the layout in which a stage's boundary value lies while it
// is computed with; 1 means the plain layout.
struct StageBlocks {
  int64_t training = 1;
  int64_t evaluation = 1;
};

struct CompileOptions {
  // The largest number of rows that Accumulate and Evaluate get. Smaller sizes are compiled by
  // Executable::CompileRows, or when they are met.
  int64_t max_rows = 1;
  // The largest number of Batch::groups.
  int64_t max_groups = 1;
  // The threads of the backend; at least 1.
  int threads = 1;
  // If the backend or the machine lacks the precision, FAILED_PRECONDITION is returned.
  Precision precision = Precision::kF32;
  PassOptions passes = {};
  // The step gives the same bits each time. On GPUs this excludes engines that sum in any order and
  // products that are chosen by measuring. On the CPU the bits are those of any number of threads.
  bool deterministic = true;
  // GPUs: what Executable::MeasuredChoices of another rank returned, or empty. It is taken over
  // instead of being measured, so that equal devices run equal kernels.
  std::string choices = {};
  // GPUs: a step is recorded once, and then launched as one graph.
  bool captures = true;
  // GPUs: the gradients of a layer's weights run beside what follows them, as a branch of the
  // step's graph. The bits are the same. It takes memory for what a branch still reads.
  bool branches = true;
  // If this is not null, batch norm takes its statistics, and the means of its gradient, over the
  // rows of all ranks. Accumulate then calls it once for each batch_norm of the forward half, in
  // order, and once for each of the backward half, each time with as many values on every rank. A
  // rank that has no rows in a step makes the same calls by TakePartInStatistics. The calls come
  // while other sums of the step may be under way (`on_ready`), so they need a channel of their
  // own. A device may make the sums by itself instead: Executable::SumStatisticsBy. An error of the
  // callback ends the call and leaves sums behind that are worth nothing. Weights of a step are
  // each rank's share of the rows; Batch::groups must be empty, and there are no microbatch_slots.
  SumOverRanks sum_statistics = nullptr;
  // Used with sum_statistics: the number of this rank, and the number of ranks. Each rank puts its
  // moments into a slot of its own, so that all ranks merge the same numbers in the order of ranks,
  // to the same bits.
  int statistics_rank = 0;
  int statistics_ranks = 1;
  // The number of slots of SumSlots.
  int sum_slots = 0;
  // GPUs: the elements of parameters() that this rank updates, in ascending ranges, or none for all
  // of them. The optimizer's slots are kept only for these (ZeRO-1), and UpdateRange is called for
  // parts of these. It has no effect if the executable has no range_update().
  std::vector<ElementRange> owned = {};
  // The memory of reduction(), of the sum slots and of parameters() is a file of its own that other
  // processes can map (shared_layout()), if the backend can do that.
  bool shares_memory = false;
  // The number of microbatches whose activations are kept at a time for Forward and Backward. With
  // 0 neither may be called.
  int microbatch_slots = 0;
  // CPU: the layout of a stage's input while it is computed with. This is CompilePlan::stage_output
  // of the stage before, so that all stages together give the bits of the whole model.
  StageBlocks stage_input = {};
  // For tests: makes Inspect() work and guards every buffer against writes beyond it. It costs
  // memory, time and the gradient of the input.
  bool inspect = false;
};

// One call of a step. The first kernel reads and writes `bytes`, and those after it `more_bytes`.
struct CallWork {
  std::string name;  // "conv1 conv2d"
  std::string op;    // "conv2d"
  int64_t kernels = 1;
  double flops = 0;
  double bytes = 0;
  double more_bytes = 0;
};

// The needs of a step, found without compiling it for use.
struct CompilePlan {
  MemoryPlan memory;
  // The number of kernels of a training step by the name of their op. "reorder" stands for changes
  // of layout.
  std::map<std::string, int64_t> calls = {};
  // The calls of a training step and of its update, in order; empty where the backend does not
  // count what they do.
  std::vector<CallWork> work = {};
  std::vector<Fallback> fallbacks = {};
  StageBlocks stage_output = {};  // see CompileOptions::stage_input

  int64_t total_calls() const;
};

// A backend. It is thread-safe after construction.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual absl::string_view name() const = 0;
  // Returns the precision that `train.precision: auto` means on this device: bf16 on GPUs that
  // compute in it.
  virtual Precision auto_precision() const { return Precision::kF32; }
  // Runs shapes, autodiff, passes and the memory plan over the model's forward graph and makes it
  // executable. Parameters start at zero: initialise them with InitializeParameters
  // (models/models.h) or a checkpoint.
  virtual absl::StatusOr<std::unique_ptr<Executable>> Compile(const Graph& model,
                                                              const OptimizerSpec& optimizer,
                                                              const CompileOptions& options) = 0;
  // Returns what Compile would hold, planned in the same way but without allocating the memory, so
  // that any size can be asked for.
  virtual absl::StatusOr<CompilePlan> Plan(const Graph& model, const OptimizerSpec& optimizer,
                                           const CompileOptions& options) = 0;
};

}  // namespace trainyard::engine
