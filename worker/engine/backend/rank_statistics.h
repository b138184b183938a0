// Computes statistics of batch norm over the rows of all ranks (CompileOptions::sum_statistics), on
// the host: the moments of each rank's rows are gathered and merged, and sums of the gradient are
// added.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "worker/engine/backend/backend.h"
#include "worker/engine/graph/step_graph.h"

namespace trainyard::engine {

// The statistics. The class is not thread-safe. It allocates memory only for the widest layer.
class RankStatistics {
 public:
  explicit RankStatistics(const CompileOptions& options);

  // Returns true if statistics are taken over all ranks.
  bool is_wanted() const { return sum_ != nullptr; }

  // Returns room for two values for each channel, for Merge and Sum. Its previous content is lost.
  absl::Span<double> Values(int64_t channels);

  // Is for forward. The values are means, then variances (biased), of this rank's `rows` rows, each
  // of `plane` values a channel; they become those of the rows of all ranks. Returns
  // INVALID_ARGUMENT, on all ranks, if there is only a single value for each channel.
  absl::Status Merge(int64_t rows, int64_t plane);
  // Returns the rows of all ranks, as of the last Merge.
  int64_t rows() const { return rows_; }

  // Is for backward. The values become sums over the ranks.
  absl::Status Sum();

  // A rank without rows calls this instead of a step's Merge and Sum.
  absl::Status TakePart(const StepGraph& step);

 private:
  const SumOverRanks sum_;
  const int64_t rank_;
  const int64_t ranks_;
  int64_t rows_ = 0;
  std::vector<double> values_;
  // Rows, means and variances of each rank. Those of the other ranks are zero until the sum brings
  // them.
  std::vector<double> slots_;
};

}  // namespace trainyard::engine
