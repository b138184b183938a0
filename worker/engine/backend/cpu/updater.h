// The optimizer of one executable: its state, and the update of all parameters in one pass.
//
// Parameters are cut into blocks that fit a near cache, and a block goes through all that happens
// to it (rule, moving average) before the next. Rules that need norms take a pass over the
// gradients (LARS, clipping) or the moments (LAMB) before. Blocks depend on the model alone, and
// their sums are added in order: any number of threads gives the same bits.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/engine/backend/cpu/update_kernels.h"
#include "worker/engine/backend/state_table.h"
#include "worker/engine/graph/memory_plan.h"
#include "worker/engine/optim/optimizer.h"

namespace trainyard::engine::cpu {

class Updater {
 public:
  // Borrows the table.
  Updater(const OptimizerSpec& spec, const StateTable& table, int64_t gradient_elements,
          int threads, Backing backing);

  // One update. `parameters` and `gradients` are flat, as the table says; the gradients are clear
  // then. False where one of them was not finite.
  bool Apply(double lr, float* parameters, float* gradients);
  void ExchangeAverages(float* parameters);

  float* slots() const { return slots_.as<float>(); }
  float* averages() const { return averages_.as<float>(); }
  int64_t state_bytes() const { return slots_.bytes() + averages_.bytes(); }
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

  int64_t CountStep();
  void SumSquares(const float* parameters, const float* gradients);
  double GradientNorm() const;
  // From the sums of its blocks.
  double SegmentRatio(size_t segment, const UpdateRates& rates) const;
  UpdateBlock At(const Block& block, float* parameters, float* gradients) const;
  UpdateRule RuleOf(const Block& block, const UpdateRates& rates) const;
  bool IsExcluded(size_t segment) const {
    return segments_[segment].is_bias_or_norm && !spec_.decay_bias_and_norm;
  }
  // body(block, its sums) for all blocks, over the threads; null where no norms are needed.
  template <class Body>
  void ForBlocks(const Body& body);

  const OptimizerSpec spec_;
  const std::vector<Segment>& segments_;
  const int64_t gradient_elements_;
  const int64_t step_offset_;
  const size_t slot_count_;
  const int threads_;
  const UpdateKernels& kernels_;
  std::vector<Block> blocks_;        // ascending
  std::vector<size_t> first_block_;  // by segment, and the end
  AlignedBuffer slots_, averages_;
  AlignedBuffer sums_;  // a Sums a block, where norms are needed; then a ratio a segment
  double* ratios_ = nullptr;
};

}  // namespace trainyard::engine::cpu
