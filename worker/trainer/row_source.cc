#include "worker/trainer/row_source.h"

#include <algorithm>
#include <optional>

#include "common/base/status_macros.h"
#include "worker/trainer/memory.h"
#include "worker/trainer/row_form.h"

namespace trainyard::trainer {
namespace {

// Consecutive rows that may be computed as one batch.
struct Slice {
  parallel::RowRange rows;
  int replica = 0;
};

}  // namespace

void RowSource::Start(const StepPlan& plan, int64_t first_step) {
  waited_before_ = waited();
  prefetcher_.reset();  // before the new one takes its memory
  plan_ = plan;
  prefetcher_ = std::make_unique<data::Prefetcher>(
      *training_.train_data, training_.preparation,
      [plan, first_step](int64_t sequence) {
        const std::optional<int64_t> step = plan.StepWithRows(first_step, sequence);
        if (!step.has_value()) return data::PlannedBatch({});
        return data::PlannedBatch(plan.HostedSamples(*step), plan.EpochOf(*step));
      },
      kTrainPrefetchDepth, clock_);
}

// Each replica is weighted by its share of the global batch. Where rows do not depend on each
// other, and the order of sums is free, the hosted replicas are one batch: the weighted sum is the
// same.
absl::StatusOr<StepRows> RowSource::Next(int64_t step) {
  StepRows result;
  const parallel::RowRange hosted = plan_.HostedRows(step);
  if (hosted.size() == 0) return result;
  const data::PreparedBatch* batch = prefetcher_->Next();
  if (batch == nullptr) {
    TY_RETURN_IF_ERROR(prefetcher_->status());
    return absl::InternalError("the prefetcher ended before the training");
  }
  result.rows = hosted.size();
  result.skipped = batch->skipped;

  std::vector<Slice> slices;
  if (training_.computes_replicas_alone) {
    for (const parallel::RowRange& rows : plan_.ReplicaSlices(step)) {
      slices.push_back({rows, static_cast<int>(slices.size())});
    }
  } else {
    slices.push_back({hosted, 0});
  }
  const auto total_rows = static_cast<double>(plan_.Rows(step));
  for (const Slice& slice : slices) {
    // max_rows is less than a slice where the spec asks for microbatches.
    for (int64_t first = slice.rows.begin; first < slice.rows.end; first += training_.max_rows) {
      const int64_t rows = std::min(training_.max_rows, slice.rows.end - first);
      result.parts.push_back({.rows = BatchOfRows(*batch, first - hosted.begin, rows,
                                                  {training_.identity.seed, step, first}),
                              .weight = static_cast<double>(rows) / total_rows,
                              .replica = slice.replica});
    }
  }
  return result;
}

absl::Duration RowSource::waited() const {
  return waited_before_ + (prefetcher_ == nullptr ? absl::ZeroDuration() : prefetcher_->waited());
}

}  // namespace trainyard::trainer
