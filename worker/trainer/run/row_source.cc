// Reads ahead in a thread of its own. It skips the steps in which this rank has no rows.
#include "worker/trainer/run/row_source.h"

#include <algorithm>
#include <optional>

#include "common/base/status_macros.h"
#include "worker/trainer/plan/memory.h"
#include "worker/trainer/run/row_form.h"

namespace trainyard::trainer {

void RowSource::Start(const StepSequence& plan, int64_t first_step) {
  waited_before_ = waited();
  prefetcher_.reset();  // before the new one takes its memory
  plan_ = plan;
  prefetcher_ = std::make_unique<data::Prefetcher>(
      *data_.dataset, data_.preparation,
      [plan, first_step](int64_t sequence) {
        const std::optional<int64_t> step = plan.StepWithRows(first_step, sequence);
        if (!step.has_value()) return data::PlannedBatch({});
        return data::PlannedBatch(plan.HostedSamples(*step), plan.EpochOf(*step));
      },
      kTrainPrefetchDepth, clock_);
}

// If rows do not depend on each other, and the order of sums is free, the hosted replicas are one
// batch: the weighted sum is the same. They are also one batch if each is a separate group of it;
// then parts are whole replicas, as many as were compiled for.
std::vector<RowSource::Slice> RowSource::Cut(int64_t step) {
  if (!model_.computes_replicas_alone) return {{.rows = plan_.HostedRows(step)}};
  std::vector<Slice> slices;
  groups_.clear();
  int replica = 0;
  for (const parallel::RowRange& rows : plan_.ReplicaSlices(step)) {
    const int mine = replica++;
    if (rows.size() == 0) continue;
    const bool has_room = !slices.empty() &&
                          static_cast<int64_t>(slices.back().groups) < model_.max_groups &&
                          rows.end - slices.back().rows.begin <= model_.max_rows;
    if (has_room) {
      slices.back().rows.end = rows.end;
      ++slices.back().groups;
    } else {
      slices.push_back({.rows = rows, .replica = mine, .first_group = groups_.size()});
    }
    groups_.push_back(rows.size());
  }
  return slices;
}

// Each replica is weighted by its share of the global batch.
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

  const auto total_rows = static_cast<double>(plan_.Rows(step));
  for (const Slice& slice : Cut(step)) {
    // max_rows is less than a slice if the spec asks for microbatches.
    for (int64_t first = slice.rows.begin; first < slice.rows.end; first += model_.max_rows) {
      const int64_t rows = std::min(model_.max_rows, slice.rows.end - first);
      result.parts.push_back(
          {.rows = BatchOfRows(*batch, first - hosted.begin, rows, {seed_, step, first}),
           .weight = static_cast<double>(rows) / total_rows,
           .replica = slice.replica});
    }
    if (slice.groups > 1) {
      result.parts.back().rows.groups =
          absl::MakeConstSpan(groups_).subspan(slice.first_group, slice.groups);
    }
  }
  return result;
}

absl::Duration RowSource::waited() const {
  return waited_before_ + (prefetcher_ == nullptr ? absl::ZeroDuration() : prefetcher_->waited());
}

}  // namespace trainyard::trainer
