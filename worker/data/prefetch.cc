// Prepares batches in threads. The threads claim rows one by one, so that one slow image delays
// only its batch, and not a whole share of rows.
#include "worker/data/prefetch.h"

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>

#include "absl/types/span.h"
#include "common/base/check.h"

namespace trainyard::data {
namespace {

// A batch that is being prepared. Its rows are claimed one by one, by whichever thread is free.
struct Slot {
  PreparedBatch batch;
  std::vector<int64_t> indices;
  int64_t epoch = 0;
  size_t claimed_rows = 0;
  size_t done_rows = 0;
  std::vector<size_t> left_out;
  // The error of the first row that cannot be read.
  absl::Status status;
  size_t status_row = 0;
};

// Closes the gaps of rows that are left out.
void CloseGaps(Slot& slot, size_t sample, size_t labels) {
  std::sort(slot.left_out.begin(), slot.left_out.end());
  size_t to = 0;
  size_t gap = 0;
  for (size_t row = 0; row < slot.indices.size(); ++row) {
    if (gap < slot.left_out.size() && slot.left_out[gap] == row) {
      ++gap;
      continue;
    }
    if (to != row) {
      std::copy_n(slot.batch.inputs.data() + row * sample, sample,
                  slot.batch.inputs.data() + to * sample);
      std::copy_n(slot.batch.labels.data() + row * labels, labels,
                  slot.batch.labels.data() + to * labels);
    }
    ++to;
  }
  slot.batch.rows = static_cast<int64_t>(to);
  slot.batch.inputs.resize(to * sample);
  slot.batch.labels.resize(to * labels);
}

}  // namespace

// The ring has one slot more than batches may wait in it, because the step is reading one. Batches
// below taken_ were handed out (the reader has taken_ - 1). Batches below filled_ are complete.
// Every row of batches below claimed_ has its thread. Batches below planned_ have a slot.
class Prefetcher::Impl {
 public:
  Impl(const Dataset& dataset, Preparation preparation, BatchPlan plan, int depth, Clock& clock)
      : dataset_(dataset),
        preparation_(std::move(preparation)),
        plan_(std::move(plan)),
        clock_(clock),
        depth_(depth),
        sample_(static_cast<size_t>(std::accumulate(dataset.sample_shape().begin(),
                                                    dataset.sample_shape().end(), int64_t{1},
                                                    std::multiplies<>()))),
        labels_(static_cast<size_t>(dataset.labels_per_row())),
        slots_(static_cast<size_t>(depth) + 1) {
    TY_CHECK(depth >= 1 && preparation_.threads >= 1);
    const auto channels = dataset.has_tokens() ? 0 : static_cast<size_t>(dataset.sample_shape()[0]);
    const Normalization& normalization = preparation_.normalization;
    TY_CHECK(normalization.mean.size() == channels && normalization.stddev.size() == channels);
    TY_CHECK(preparation_.form == RowForm::kFloats ||
             (!dataset.bytes().pixels.empty() &&
              IsStoredRow(preparation_.augmentation, dataset.sample_shape())));
    for (int i = 0; i < preparation_.threads; ++i) threads_.emplace_back([this] { Work(); });
  }

  ~Impl() {
    {
      const std::lock_guard lock(mutex_);
      is_stopping_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  const PreparedBatch* Next() {
    std::unique_lock lock(mutex_);
    if (!HasBatchOrEnd()) {
      const absl::Duration start = clock_.Uptime();
      changed_.wait(lock, [this] { return HasBatchOrEnd(); });
      waited_ += clock_.Uptime() - start;
    }
    if (taken_ == filled_) return nullptr;
    Slot& slot = SlotOf(taken_);
    status_ = slot.status;
    if (!status_.ok()) return nullptr;
    ++taken_;
    // From here on, the slot of the previous call is free.
    changed_.notify_all();
    return &slot.batch;
  }

  absl::Status status() const {
    const std::lock_guard lock(mutex_);
    return status_;
  }

  absl::Duration waited() const {
    const std::lock_guard lock(mutex_);
    return waited_;
  }

 private:
  // Each thread works on rows first, then assigns a slot to the next batch, then plans one more.
  void Work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return is_stopping_ || HasRow() || HasRoom() || MayPlan(); });
      if (is_stopping_) return;
      if (HasRow()) {
        PrepareNextRow(lock);
      } else if (HasRoom()) {
        StartBatch();
      } else {
        PlanNextBatch(lock);
      }
    }
  }

  void PrepareNextRow(std::unique_lock<std::mutex>& lock) {
    const int64_t sequence = claimed_;
    Slot& slot = SlotOf(sequence);
    const size_t row = slot.claimed_rows++;
    if (slot.claimed_rows == slot.indices.size()) ++claimed_;
    lock.unlock();
    // Meanwhile the row belongs to this thread.
    const RowResult result = Prepare(slot, row);
    lock.lock();
    slot.batch.skipped += result.skipped;
    if (result.is_left_out) slot.left_out.push_back(row);
    if (!result.status.ok() && (slot.status.ok() || row < slot.status_row)) {
      slot.status = result.status;
      slot.status_row = row;
    }
    if (++slot.done_rows < slot.indices.size()) return;
    if (!slot.left_out.empty()) CloseGaps(slot, sample_, labels_);
    while (filled_ < claimed_ && SlotOf(filled_).done_rows == SlotOf(filled_).indices.size()) {
      ++filled_;
    }
    changed_.notify_all();
  }

  RowResult Prepare(Slot& slot, size_t row) const {
    if (preparation_.form != RowForm::kFloats) {
      PrepareStoredRow(dataset_, preparation_, slot.epoch, slot.indices[row], row, slot.batch);
      return {};
    }
    return PrepareRow(dataset_, preparation_, slot.epoch, slot.indices[row],
                      absl::MakeSpan(slot.batch.inputs).subspan(row * sample_, sample_),
                      absl::MakeSpan(slot.batch.labels).subspan(row * labels_, labels_));
  }

  void StartBatch() {
    Slot& slot = SlotOf(planned_++);
    const size_t rows = next_plan_->indices.size();
    const RowForm form = preparation_.form;
    slot.batch.rows = static_cast<int64_t>(rows);
    slot.batch.inputs.resize(form == RowForm::kFloats ? rows * sample_ : 0);
    slot.batch.stored.resize(form == RowForm::kFloats ? 0 : rows);
    slot.batch.pixels.resize(form == RowForm::kBytes ? rows * sample_ : 0);
    slot.batch.labels.resize(rows * labels_);
    slot.batch.skipped = 0;
    slot.indices = std::move(next_plan_->indices);
    slot.epoch = next_plan_->epoch;
    slot.claimed_rows = 0;
    slot.done_rows = 0;
    slot.left_out.clear();
    next_plan_.reset();
    changed_.notify_all();
  }

  void PlanNextBatch(std::unique_lock<std::mutex>& lock) {
    is_planning_ = true;
    const int64_t sequence = planned_;
    lock.unlock();
    PlannedBatch plan = plan_(sequence);
    lock.lock();
    is_planning_ = false;
    is_ended_ = plan.indices.empty();
    if (!is_ended_) next_plan_ = std::move(plan);
    changed_.notify_all();
  }

  Slot& SlotOf(int64_t sequence) { return slots_[static_cast<size_t>(sequence) % slots_.size()]; }
  // The caller holds mutex_ during these calls.
  bool HasBatchOrEnd() const { return taken_ < filled_ || (is_ended_ && taken_ == planned_); }
  bool HasRow() const { return claimed_ < planned_; }
  bool HasRoom() const { return next_plan_.has_value() && planned_ - taken_ < depth_; }
  bool MayPlan() const { return !is_ended_ && !is_planning_ && !next_plan_.has_value(); }

  const Dataset& dataset_;
  const Preparation preparation_;
  const BatchPlan plan_;
  Clock& clock_;
  const int64_t depth_;
  const size_t sample_;  // in elements
  const size_t labels_;  // of a row
  std::vector<Slot> slots_;
  // This is a std::mutex, because the thread sanitizer does not see through the installed absl
  // library.
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // mutex_ guards these.
  int64_t planned_ = 0;
  int64_t claimed_ = 0;
  int64_t filled_ = 0;
  int64_t taken_ = 0;
  std::optional<PlannedBatch> next_plan_;
  bool is_planning_ = false;
  bool is_ended_ = false;
  bool is_stopping_ = false;
  absl::Status status_;
  absl::Duration waited_;
  std::vector<std::thread> threads_;
};

Prefetcher::Prefetcher(const Dataset& dataset, Preparation preparation, BatchPlan plan, int depth,
                       Clock& clock)
    : impl_(
          std::make_unique<Impl>(dataset, std::move(preparation), std::move(plan), depth, clock)) {}
Prefetcher::~Prefetcher() = default;

const PreparedBatch* Prefetcher::Next() {
  return impl_->Next();
}
absl::Status Prefetcher::status() const {
  return impl_->status();
}
absl::Duration Prefetcher::waited() const {
  return impl_->waited();
}

}  // namespace trainyard::data
