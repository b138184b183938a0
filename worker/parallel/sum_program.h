// Runs a SumPlan over arrays, element by element, in pieces that stay in the first-level cache.
// Each term is read once and the sum is written once, whatever the order of the sums.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/types/span.h"
#include "worker/parallel/sum_tree.h"

namespace trainyard::parallel {

// The program. The class is not thread-safe. It allocates no memory after it was made.
class SumProgram {
 public:
  explicit SumProgram(const SumPlan& plan);

  // Returns the number of terms that it takes.
  size_t terms() const { return terms_; }

  // Sets targets[t][i] to the sum of terms[...][i] for i in [0, count), for every target; there is
  // at least one. A target may be one of the terms. Otherwise none of these arrays overlap.
  void Run(absl::Span<const float* const> terms, size_t count, absl::Span<float* const> targets);

 private:
  const std::vector<SumOp> ops_;
  const size_t terms_;
  std::vector<const float*> stack_;
  std::vector<float> scratch_;  // [depth, kPiece]
};

}  // namespace trainyard::parallel
