// Merges the moments of batch norm over all ranks, in the order of the ranks.
#include "worker/engine/backend/rank_statistics.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"

namespace trainyard::engine {

RankStatistics::RankStatistics(const CompileOptions& options)
    : sum_(options.sum_statistics),
      rank_(options.statistics_rank),
      ranks_(options.statistics_ranks) {}

absl::Span<double> RankStatistics::Values(int64_t channels) {
  values_.assign(static_cast<size_t>(2 * channels), 0.0);
  return absl::MakeSpan(values_);
}

// Each slot of the sum has only one term that is not zero, so the sum is exact in any order, and
// all ranks merge the same numbers. Moments are merged instead of sums of squares, because with
// values far from zero those would leave nothing of the variance (Chan, Golub & LeVeque 1983,
// equation 2.1).
absl::Status RankStatistics::Merge(int64_t rows, int64_t plane) {
  TY_CHECK(is_wanted());
  const size_t slot = values_.size() + 1;
  const size_t channels = values_.size() / 2;
  slots_.assign(slot * static_cast<size_t>(ranks_), 0.0);
  if (rows > 0) {
    double* const mine = slots_.data() + static_cast<size_t>(rank_) * slot;
    mine[0] = static_cast<double>(rows);
    std::copy(values_.begin(), values_.end(), mine + 1);
  }
  TY_RETURN_IF_ERROR(sum_(absl::MakeSpan(slots_)));
  std::fill(values_.begin(), values_.end(), 0.0);
  double merged = 0;  // the rows so far
  for (size_t rank = 0; rank < static_cast<size_t>(ranks_); ++rank) {
    const double* const of_rank = slots_.data() + rank * slot;
    if (of_rank[0] == 0) continue;
    const double all = merged + of_rank[0];
    const double share = of_rank[0] / all;
    for (size_t c = 0; c < channels; ++c) {
      double& mean = values_[c];
      double& variance = values_[channels + c];
      const double distance = of_rank[1 + c] - mean;
      const double between = (1 - share) * share * distance * distance;
      variance = (1 - share) * variance + share * of_rank[1 + channels + c] + between;
      mean += share * distance;
    }
    merged = all;
  }
  rows_ = static_cast<int64_t>(std::llround(merged));
  if (rows_ * plane < 2) {
    return absl::InvalidArgumentError(absl::StrCat("batch_norm over ", rows_ * plane,
                                                   " values per channel, of all ranks; expected ",
                                                   "at least 2"));
  }
  return absl::OkStatus();
}

absl::Status RankStatistics::Sum() {
  TY_CHECK(is_wanted());
  return sum_(absl::MakeSpan(values_));
}

absl::Status RankStatistics::TakePart(const StepGraph& step) {
  for (const Node& node : step.graph.nodes) {
    const bool is_forward = node.op == OpKind::kBatchNorm && node.norm().batch_statistics;
    if (!is_forward && node.op != OpKind::kBatchNormGradient) continue;
    const Shape& x = step.graph.value(node.inputs[is_forward ? 0 : 1]).shape;
    Values(x[0]);
    TY_RETURN_IF_ERROR(Annotate(is_forward ? Merge(0, x[1] * x[2]) : Sum(),
                                absl::StrCat("layer '", node.name, "'")));
  }
  return absl::OkStatus();
}

}  // namespace trainyard::engine
