#include "worker/data/prefetch.h"

#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
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
      absl::MutexLock lock(&mutex_);
      is_stopping_ = true;
    }
    thread_.join();
  }

  const PreparedBatch* Next() {
    absl::MutexLock lock(&mutex_);
    if (!HasBatchOrEnd()) {
      const absl::Duration start = clock_.Uptime();
      mutex_.Await(absl::Condition(this, &Impl::HasBatchOrEnd));
      waited_ += clock_.Uptime() - start;
    }
    if (taken_ == filled_) return nullptr;
    return &Slot(taken_++);
  }

  absl::Duration waited() const {
    absl::MutexLock lock(&mutex_);
    return waited_;
  }

 private:
  void Fill() {
    for (int64_t sequence = 0;; ++sequence) {
      const std::vector<int64_t> indices = plan_(sequence);
      PreparedBatch* slot = indices.empty() ? nullptr : AwaitSlot();
      const bool is_complete = slot != nullptr && FillSlot(indices, *slot);
      absl::MutexLock lock(&mutex_);
      if (!is_complete) {
        is_ended_ = true;
        return;
      }
      ++filled_;
    }
  }

  // The next slot to fill, or null when it is time to stop.
  PreparedBatch* AwaitSlot() {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(this, &Impl::HasRoomOrStops));
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
    absl::MutexLock lock(&mutex_);
    return is_stopping_;
  }

  PreparedBatch& Slot(int64_t sequence) {
    return slots_[static_cast<size_t>(sequence) % slots_.size()];
  }
  bool HasBatchOrEnd() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return taken_ < filled_ || is_ended_;
  }
  bool HasRoomOrStops() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return filled_ - taken_ < depth_ || is_stopping_;
  }

  const Dataset& dataset_;
  const Normalization normalization_;
  const BatchPlan plan_;
  Clock& clock_;
  const int64_t depth_;
  std::vector<PreparedBatch> slots_;
  mutable absl::Mutex mutex_;
  int64_t filled_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t taken_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Duration waited_ ABSL_GUARDED_BY(mutex_);
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
