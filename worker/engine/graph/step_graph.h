// From a model to what one training step or one evaluation computes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/engine/graph/graph.h"

namespace trainyard::engine {

// Which passes to apply (kPasses in passes.h tells what they do). Each can be switched off, to
// prove that it keeps the numbers or to find the one that does not.
struct PassOptions {
  bool fuse_relu = true;
  bool fuse_relu_into_max_pool_gradient = true;
  bool fuse_residual = true;
  bool fuse_gradient_sums = true;
  bool merge_siblings = true;
  bool recompute = false;  // costs time
  bool remove_dead_code = true;
  bool recompute_norms = true;
  bool place_parts = true;
  bool reuse_in_place = true;
};
// The graph as autodiff leaves it.
inline constexpr PassOptions kNoPasses = {.fuse_relu = false,
                                          .fuse_relu_into_max_pool_gradient = false,
                                          .fuse_residual = false,
                                          .fuse_gradient_sums = false,
                                          .merge_siblings = false,
                                          .remove_dead_code = false,
                                          .recompute_norms = false,
                                          .place_parts = false,
                                          .reuse_in_place = false};

// Batch statistics of one batch_norm, and the running ones into which they are folded.
struct BatchStatistics {
  std::string layer;
  ValueId mean = kNoValue;
  ValueId variance = kNoValue;  // biased; the running one takes it times n / (n - 1)
  ValueId running_mean = kNoValue;
  ValueId running_variance = kNoValue;
  int64_t count_per_row = 1;  // n = rows * count_per_row
  double momentum = 0.1;
};

struct StepGraph {
  Graph graph;  // forward, then backward
  // In the order in which backward produces them: the order of the reduction arena.
  std::vector<ValueId> parameter_gradients;
  std::vector<BatchStatistics> statistics;  // in forward order
  ValueId input_gradient = kNoValue;
  // Values that must still be there when the step ends.
  std::vector<ValueId> kept;
  int64_t max_groups = 1;  // StepOptions::max_groups
};

struct StepOptions {
  PassOptions passes = {};
  // Keeps the logits and takes the gradient with respect to the input (not to tokens), for tests.
  bool inspect = false;
  // Largest number of groups of rows of which batch_norm takes statistics; those of more than one
  // are [groups, C].
  int64_t max_groups = 1;
};

// Forward with batch statistics, and backward.
StepGraph BuildTrainingStep(const Graph& model, const StepOptions& options);
// Forward with running statistics, without dropout and label smoothing. The loss is the last node,
// so that logits come without labels.
StepGraph BuildEvaluationStep(const Graph& model, const StepOptions& options);

// Of the forward half, which ends with the loss or the stage's output.
size_t ForwardNodes(const StepGraph& step);

// Where everything lies that must agree between ranks, in elements. Depends on the model alone,
// not on passes, backend or instruction set. Entries start at multiples of kReductionAlignment;
// what lies between is zero.
inline constexpr int64_t kReductionAlignment = 16;

struct ReductionEntry {
  enum class Kind { kGradient, kMean, kVariance, kLoss, kCorrect };
  Kind kind = Kind::kGradient;
  // The parameter, or the running statistic; kNoValue for loss and correct.
  ValueId target = kNoValue;
  int64_t offset = 0;
  int64_t count = 0;
};

struct ReductionLayout {
  std::vector<ReductionEntry> entries;  // ascending, without hole but the alignment
  int64_t gradient_elements = 0;        // [0, this): gradients; parameters lie at the same offsets
  int64_t statistic_elements = 0;       // then these
  int64_t loss_offset = 0;
  int64_t correct_offset = 0;
  int64_t size = 0;

  // Of the gradient of `parameter`, or of the running statistic.
  const ReductionEntry& entry(ValueId target) const;
};

ReductionLayout LayOutReduction(const StepGraph& step);

// For each node: [0, this) of the reduction arena is final when it has run.
std::vector<int64_t> ReadyAfterNodes(const StepGraph& step, const ReductionLayout& layout);

}  // namespace trainyard::engine
