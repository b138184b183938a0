// Sums of terms as a SumPlan says, element by element: what every exchange of host memory computes,
// with the same bits.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "worker/parallel/sum_tree.h"

namespace trainyard::parallel {

// Not thread-safe: has the memory in between, which stays in the first-level cache.
class TermSummer {
 public:
  explicit TermSummer(SumPlan plan);

  // targets[t][i] = the sum of terms[...][i], for i in [0, count). `terms`: as many as the plan
  // pushes, in its order. A target may be one of the terms, or lie elsewhere; else none overlap.
  void Sum(absl::Span<const float* const> terms, int64_t count, absl::Span<float* const> targets);

 private:
  // Where the sum of [begin, begin + count) lies: in the memory in between, or the only term.
  const float* SumChunk(absl::Span<const float* const> terms, int64_t begin, int64_t count);

  const SumPlan plan_;
  // One chunk for each place of the stack, and what lies there: a chunk, or a term.
  std::vector<float> chunks_;
  std::vector<const float*> stack_;
};

}  // namespace trainyard::parallel
