// Implements the optimizer of one executable: its state, and the update of all parameters in one
// pass.
//
// Parameters are cut into blocks that fit a near cache, and a block goes through all that happens
// to it (rule, moving average) before the next. Rules that need norms take a pass over the
// gradients (LARS, clipping) or the moments (LAMB) before. Blocks depend only on the model, and
// their sums are added in order, so any number of threads gives the same bits.
//
// An update that takes no norms can be made range by range, whatever the cut: elements are rounded
// alike wherever a block begins.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "worker/engine/backend/cpu/update_kernels.h"
#include "worker/engine/backend/optimizer_state.h"
#include "worker/engine/backend/state_table.h"
#include "worker/engine/graph/memory_plan.h"
#include "worker/engine/optim/optimizer.h"

namespace trainyard::engine::cpu {

class Updater {
 public:
  // Makes an updater. It borrows the table.
  Updater(const OptimizerSpec& spec, const StateTable& table, int64_t gradient_elements,
          int threads, Backing backing);

  // Make one update: first Begin, then Apply to disjoint ranges, then End. `parameters` and
  // `gradients` are flat, as the table says; the gradients of a range are clear after Apply. If
  // norms are needed (not IsElementwise), all gradients must be there at Begin, and a single Apply
  // takes all.
  void Begin(double lr, float* parameters, float* gradients);
  void Apply(int64_t begin, int64_t end, float* parameters, float* gradients);
  // Clears the gradients that were in no range. Returns false if a gradient that was applied was
  // not finite.
  bool End(float* gradients);
  bool updates_ranges() const { return IsElementwise(spec_); }
  OptimizerState<float>& state() { return state_; }
  const OptimizerState<float>& state() const { return state_; }
  int64_t workspace_bytes() const { return sums_.bytes(); }

 private:
  struct Block {
    int64_t offset = 0;
    int64_t count = 0;
    size_t segment = 0;
  };
  // Sums of squares over a block: of the parameter, and of the gradient or the update.
  struct Sums {
    double parameter = 0;
    double other = 0;
  };

  struct Range {
    int64_t begin = 0;
    int64_t end = 0;
  };

  void SumSquares(const float* parameters, const float* gradients);
  double GradientNorm() const;
  // Does LAMB's first half: the moments and the sums over them. Clears the gradients.
  void ApplyMoments(float* parameters, float* gradients);
  void ApplyTo(const Block& block, float* parameters, float* gradients);
  // Returns the ratio of a segment from the sums of its blocks.
  double SegmentRatio(size_t segment, const UpdateRates& rates) const;
  UpdateBlock At(const Block& block, float* parameters, float* gradients) const;
  UpdateRule RuleOf(const Block& block) const;
  bool IsExcluded(size_t segment) const {
    return segments_[segment].is_bias_or_norm && !spec_.decay_bias_and_norm;
  }
  // Calls body(block, its sums) for all blocks, over the threads.
  template <class Body>
  void ForBlocks(const Body& body);

  const OptimizerSpec spec_;
  const std::vector<Segment>& segments_;
  const int64_t gradient_elements_;
  const int threads_;
  const UpdateKernels& kernels_;
  std::vector<Block> blocks_;        // ascending
  std::vector<size_t> first_block_;  // by segment; one more for the end
  OptimizerState<float> state_;
  AlignedBuffer sums_;  // a Sums for each block, if norms are needed; then a ratio for each segment
  double* ratios_ = nullptr;
  // The rates of the update that has begun.
  UpdateRates rates_;
  std::atomic<bool> is_finite_{true};
  std::vector<Range> applied_;
};

}  // namespace trainyard::engine::cpu
