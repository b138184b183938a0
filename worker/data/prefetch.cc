#include "worker/data/prefetch.h"

#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/types/span.h"
#include "common/base/check.h"

namespace trainyard::data {

// The ring has one slot more than batches that may wait in it: the one that the step is reading.
// Slots [taken_, filled_) hold batches; slot taken_ - 1 is the reader's; the thread fills slot
// filled_.
class Prefetcher::Impl {
 public:
  Impl(const Dataset& dataset, Normalization normalization, BatchPlan plan, int depth, Clock& clock)
      : dataset_(dataset),
        normalization_(std::move(normalization)),
        plan_(std::move(plan)),
        clock_(clock),
        depth_(depth),
        slots_(static_cast<size_t>(depth) + 1) {
    TY_CHECK(depth >= 1);
    const auto channels = static_cast<size_t>(dataset.sample_shape()[0]);
    TY_CHECK(normalization_.mean.size() == channels && normalization_.stddev.size() == channels);
    thread_ = std::thread([this] { Fill(); });
  }

  ~Impl() {
    {
      const std::lock_guard lock(mutex_);
      is_stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  const PreparedBatch* Next() {
    std::unique_lock lock(mutex_);
    if (!HasBatchOrEnd()) {
      const absl::Duration start = clock_.Uptime();
      changed_.wait(lock, [this] { return HasBatchOrEnd(); });
      waited_ += clock_.Uptime() - start;
    }
    if (taken_ == filled_) return nullptr;
    const PreparedBatch* batch = &Slot(taken_++);
    // The slot of the call before is free from here on.
    changed_.notify_all();
    return batch;
  }

  absl::Duration waited() const {
    const std::lock_guard lock(mutex_);
    return waited_;
  }

 private:
  void Fill() {
    for (int64_t sequence = 0;; ++sequence) {
      const std::vector<int64_t> indices = plan_(sequence);
      PreparedBatch* slot = indices.empty() ? nullptr : AwaitSlot();
      const bool is_complete = slot != nullptr && FillSlot(indices, *slot);
      const std::lock_guard lock(mutex_);
      is_ended_ = !is_complete;
      if (is_complete) ++filled_;
      changed_.notify_all();
      if (is_ended_) return;
    }
  }

  // The next slot to fill, or null when it is time to stop.
  PreparedBatch* AwaitSlot() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return HasRoomOrStops(); });
    return is_stopping_ ? nullptr : &Slot(filled_);
  }

  // False where it was told to stop. The slot is the thread's alone meanwhile.
  bool FillSlot(const std::vector<int64_t>& indices, PreparedBatch& slot) {
    const std::vector<int64_t>& shape = dataset_.sample_shape();
    const auto area = static_cast<size_t>(shape[1] * shape[2]);
    const size_t sample = static_cast<size_t>(shape[0]) * area;
    slot.inputs.resize(indices.size() * sample);
    slot.labels.resize(indices.size());
    for (size_t row = 0; row < indices.size(); ++row) {
      if (IsStopping()) return false;
      const auto pixels = absl::MakeSpan(slot.inputs).subspan(row * sample, sample);
      dataset_.Read(indices[row], pixels, slot.labels[row]);
      for (size_t p = 0; p < sample; ++p) {
        pixels[p] = (pixels[p] - normalization_.mean[p / area]) / normalization_.stddev[p / area];
      }
    }
    return true;
  }

  bool IsStopping() const {
    const std::lock_guard lock(mutex_);
    return is_stopping_;
  }

  PreparedBatch& Slot(int64_t sequence) {
    return slots_[static_cast<size_t>(sequence) % slots_.size()];
  }
  // Both are asked with mutex_ held.
  bool HasBatchOrEnd() const { return taken_ < filled_ || is_ended_; }
  bool HasRoomOrStops() const { return filled_ - taken_ < depth_ || is_stopping_; }

  const Dataset& dataset_;
  const Normalization normalization_;
  const BatchPlan plan_;
  Clock& clock_;
  const int64_t depth_;
  std::vector<PreparedBatch> slots_;
  // std's, not absl's: the thread sanitizer does not see through the installed library's.
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  int64_t filled_ = 0;
  int64_t taken_ = 0;
  bool is_ended_ = false;
  bool is_stopping_ = false;
  absl::Duration waited_;
  std::thread thread_;
};

Prefetcher::Prefetcher(const Dataset& dataset, Normalization normalization, BatchPlan plan,
                       int depth, Clock& clock)
    : impl_(std::make_unique<Impl>(dataset, std::move(normalization), std::move(plan), depth,
                                   clock)) {}
Prefetcher::~Prefetcher() = default;

const PreparedBatch* Prefetcher::Next() {
  return impl_->Next();
}
absl::Duration Prefetcher::waited() const {
  return impl_->waited();
}

}  // namespace trainyard::data
