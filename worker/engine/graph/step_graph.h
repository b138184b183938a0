// Defines what one training step or one evaluation computes, and where its sums lie.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/engine/graph/graph.h"

namespace trainyard::engine {

// The batch statistics of one batch_norm, and the running ones into which they are folded.
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
  // The gradients in the order in which backward produces them, which is the order of the reduction
  // arena.
  std::vector<ValueId> parameter_gradients;
  std::vector<BatchStatistics> statistics;  // in forward order
  ValueId input_gradient = kNoValue;
  // Values that must still exist when the step ends.
  std::vector<ValueId> kept;
  int64_t max_groups = 1;  // StepOptions::max_groups
};

// Returns the number of nodes of the forward half, which ends with the loss or the stage's output.
size_t ForwardNodes(const StepGraph& step);

// The layout, in elements, of everything on which ranks must agree. It depends only on the model,
// and not on passes, backend or instruction set. Entries start at multiples of kReductionAlignment,
// and the gaps between them are zero.
inline constexpr int64_t kReductionAlignment = 16;

struct ReductionEntry {
  enum class Kind { kGradient, kMean, kVariance, kLoss, kCorrect };
  Kind kind = Kind::kGradient;
  // The parameter, or the running statistic, or kNoValue for loss and correct.
  ValueId target = kNoValue;
  int64_t offset = 0;
  int64_t count = 0;
};

struct ReductionLayout {
  std::vector<ReductionEntry> entries;  // ascending, without gaps other than the alignment
  int64_t gradient_elements = 0;        // gradients are [0, this); parameters have the same offsets
  int64_t statistic_elements = 0;       // the statistics follow
  int64_t loss_offset = 0;
  int64_t correct_offset = 0;
  int64_t size = 0;

  // Returns the entry of the gradient of a parameter, or of a running statistic.
  const ReductionEntry& entry(ValueId target) const;
};

ReductionLayout LayOutReduction(const StepGraph& step);

// Returns for each node how far [0, this) the reduction arena is final when the node has run.
std::vector<int64_t> ReadyAfterNodes(const StepGraph& step, const ReductionLayout& layout);

}  // namespace trainyard::engine
