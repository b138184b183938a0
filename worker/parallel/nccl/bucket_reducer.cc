#include "worker/parallel/nccl/bucket_reducer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace trainyard::parallel {

absl::StatusOr<std::unique_ptr<BucketReducer>> BucketReducer::Create(
    NcclCommunicator& communicator, absl::Span<float> arena, const BucketReducerOptions& options) {
  auto reducer = std::unique_ptr<BucketReducer>(new BucketReducer(communicator, arena, options));
  TY_RETURN_IF_ERROR(reducer->stream_.Create());
  TY_RETURN_IF_ERROR(reducer->ready_.Create());
  TY_RETURN_IF_ERROR(reducer->done_.Create());
  return reducer;
}

absl::Status BucketReducer::Start(int64_t offset, int64_t count, cudaStream_t compute) {
  const auto size = static_cast<int64_t>(arena_.size());
  if (offset < 0 || count < 0 || offset > size || count > size - offset) {
    return absl::OutOfRangeError(absl::StrCat("elements from ", offset, ", ", count,
                                              " of them, are not in an arena of ", size));
  }
  if (count == 0) return absl::OkStatus();
  const Range range = {offset, offset + count};
  const bool is_adjacent = range.end == pending_.begin || range.begin == pending_.end;
  if (pending_.size() > 0 && !is_adjacent) TY_RETURN_IF_ERROR(Flush(compute));
  pending_ = pending_.size() == 0
                 ? range
                 : Range{std::min(pending_.begin, range.begin), std::max(pending_.end, range.end)};
  started_ += count;
  return IsFull() ? Flush(compute) : absl::OkStatus();
}

bool BucketReducer::IsFull() const {
  const int64_t left = static_cast<int64_t>(arena_.size()) - started_;
  // What is still to come shall be a bucket of its own.
  if (left > 0 && left <= options_.last_bucket_elements) return true;
  const int64_t wanted = buckets_ == 0 ? options_.first_bucket_elements : options_.bucket_elements;
  return left <= 0 || pending_.size() >= wanted;
}

absl::Status BucketReducer::Flush(cudaStream_t compute) {
  if (pending_.size() == 0) return absl::OkStatus();
  const Range range = std::exchange(pending_, Range{});
  // An event may be recorded again at once: who waits for it waits for what it was when it asked.
  TY_RETURN_IF_ERROR(FromCuda(cudaEventRecord(ready_.get(), compute), "start of a bucket"));
  TY_RETURN_IF_ERROR(
      FromCuda(cudaStreamWaitEvent(stream_.get(), ready_.get(), 0), "start of a bucket"));
  ++buckets_;
  return communicator_.EnqueueAllReduce(
      arena_.subspan(static_cast<size_t>(range.begin), static_cast<size_t>(range.size())),
      stream_.get());
}

absl::Status BucketReducer::Finish(cudaStream_t compute) {
  absl::Status status = Flush(compute);
  const int64_t started = std::exchange(started_, 0);
  last_buckets_ = std::exchange(buckets_, 0);
  pending_ = {};
  // The stream must be joined whatever happened, or a capture could not end. Where nothing was
  // forked there is nothing to join.
  if (last_buckets_ > 0) {
    status.Update(FromCuda(cudaEventRecord(done_.get(), stream_.get()), "end of the buckets"));
    status.Update(FromCuda(cudaStreamWaitEvent(compute, done_.get(), 0), "end of the buckets"));
  }
  TY_RETURN_IF_ERROR(status);
  if (started == static_cast<int64_t>(arena_.size())) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(started, " elements were summed of an arena of ", arena_.size()));
}

}  // namespace trainyard::parallel
