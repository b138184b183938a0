// Statistics of batch norm over the rows of all ranks (CompileOptions::sum_statistics), on the
// host: the moments of each rank's rows are gathered and merged, sums of the gradient are summed.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "worker/engine/backend/backend.h"
#include "worker/engine/graph/step_graph.h"

namespace trainyard::engine {

// Not thread-safe. Allocates for the widest layer alone.
class RankStatistics {
 public:
  explicit RankStatistics(const CompileOptions& options);

  // Returns true if statistics are those of all ranks.
  bool is_wanted() const { return sum_ != nullptr; }

  // Room for two values a channel, for Merge and Sum; what was there is lost.
  absl::Span<double> Values(int64_t channels);

  // Forward. Values: means, then variances (biased), of this rank's `rows` rows, each of `plane`
  // values a channel; they become those of the rows of all ranks. INVALID_ARGUMENT, on all ranks,
  // where there is a single value per channel.
  absl::Status Merge(int64_t rows, int64_t plane);
  // The rows of all ranks, by the last Merge.
  int64_t rows() const { return rows_; }

  // Backward. The values become sums over the ranks.
  absl::Status Sum();

  // A rank without rows calls this in the place of a step's Merge and Sum.
  absl::Status TakePart(const StepGraph& step);

 private:
  const SumOverRanks sum_;
  const int64_t rank_;
  const int64_t ranks_;
  int64_t rows_ = 0;
  std::vector<double> values_;
  // Rows, means and variances of each rank; zeros until the sum brings those of the others.
  std::vector<double> slots_;
};

}  // namespace trainyard::engine
