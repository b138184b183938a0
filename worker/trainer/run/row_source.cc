// Reads ahead in a thread of its own. It skips the steps in which this rank has no rows.
#include "worker/trainer/run/row_source.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "common/base/status_macros.h"
#include "worker/trainer/plan/memory.h"
#include "worker/trainer/run/evaluation.h"
#include "worker/trainer/run/row_form.h"

namespace trainyard::trainer {
namespace {

// Consecutive rows that may be computed as one batch.
struct Slice {
  parallel::RowRange rows;
  int replica = 0;
  // These are StepCut::groups[first_group, first_group + groups).
  size_t first_group = 0;
  size_t groups = 1;
};

struct StepCut {
  std::vector<Slice> slices;
  std::vector<int64_t> groups;  // rows of each replica of the step that has some
};

// If rows do not depend on each other, and the order of sums is free, the hosted replicas are one
// batch: the weighted sum is the same. They are also one batch if each is a separate group of it;
// then parts are whole replicas, as many as were compiled for.
StepCut Cut(const StepSequence& plan, const CompiledModel& model, int64_t step) {
  StepCut cut;
  if (!model.computes_replicas_alone) {
    cut.slices = {{.rows = plan.HostedRows(step)}};
    return cut;
  }
  int replica = 0;
  for (const parallel::RowRange& rows : plan.ReplicaSlices(step)) {
    const int mine = replica++;
    if (rows.size() == 0) continue;
    const bool has_room = !cut.slices.empty() &&
                          static_cast<int64_t>(cut.slices.back().groups) < model.max_groups &&
                          rows.end - cut.slices.back().rows.begin <= model.max_rows;
    if (has_room) {
      cut.slices.back().rows.end = rows.end;
      ++cut.slices.back().groups;
    } else {
      cut.slices.push_back({.rows = rows, .replica = mine, .first_group = cut.groups.size()});
    }
    cut.groups.push_back(rows.size());
  }
  return cut;
}

}  // namespace

// All steps of an epoch are alike, except that the last one may be smaller. A training may end
// before it.
std::vector<int64_t> RowsOfParts(const StepSequence& plan, const CompiledModel& model) {
  std::set<int64_t> sizes;
  const int64_t last = std::min(plan.steps_per_epoch(), plan.total_steps()) - 1;
  for (const int64_t step : {int64_t{0}, last}) {
    for (const Slice& slice : Cut(plan, model, step).slices) {
      AddBatchSizes(slice.rows.size(), model.max_rows, sizes);
    }
  }
  return {sizes.begin(), sizes.end()};
}

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
  StepCut cut = Cut(plan_, model_, step);
  groups_ = std::move(cut.groups);
  for (const Slice& slice : cut.slices) {
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
