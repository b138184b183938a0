// Sums gradients over the ranks while the backward pass still computes others: ranges of the arena
// that are ready are merged into buckets, each summed by one collective on a stream of its own.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/parallel/nccl/nccl_communicator.h"

namespace trainyard::parallel {

struct BucketReducerOptions {
  // Elements from which on a bucket is sent. The first is small, so that the wire is busy early; so
  // is the last, since nothing hides it. Those between are large enough for the full bandwidth.
  int64_t bucket_elements = int64_t{25} << 18;
  int64_t first_bucket_elements = int64_t{1} << 18;
  int64_t last_bucket_elements = int64_t{1} << 18;
};

// Works eagerly, and where the compute stream is being captured (mode thread-local or relaxed): the
// collectives then become part of its graph, forked and joined by events. One collective should
// have run eagerly before, since NCCL connects at its first. All ranks must start the same ranges
// in the same order, and capture or not alike.
//
// Not thread-safe.
class BucketReducer {
 public:
  // `arena`: all that is summed, in device memory. Both are borrowed.
  static absl::StatusOr<std::unique_ptr<BucketReducer>> Create(NcclCommunicator& communicator,
                                                               absl::Span<float> arena,
                                                               const BucketReducerOptions& options);

  // Elements [offset, offset + count) of the arena are as they shall be summed, once what
  // `compute` was given so far has run. They must not be touched before Finish. OUT_OF_RANGE for
  // what does not lie in the arena; else as the communicator.
  absl::Status Start(int64_t offset, int64_t count, cudaStream_t compute);
  // Everything was started: `compute` waits for all sums. FAILED_PRECONDITION where the ranges do
  // not add up to the arena; then nothing of this round may be used. The next round may begin.
  absl::Status Finish(cudaStream_t compute);

  // Collectives of the last round that was finished.
  int64_t buckets() const { return last_buckets_; }

 private:
  struct Range {
    int64_t begin = 0;
    int64_t end = 0;
    int64_t size() const { return end - begin; }
  };

  BucketReducer(NcclCommunicator& communicator, absl::Span<float> arena,
                const BucketReducerOptions& options)
      : communicator_(communicator), arena_(arena), options_(options) {}

  absl::Status Flush(cudaStream_t compute);
  bool IsFull() const;

  NcclCommunicator& communicator_;
  const absl::Span<float> arena_;
  const BucketReducerOptions options_;
  OwnedStream stream_;
  OwnedEvent ready_;
  OwnedEvent done_;
  Range pending_;
  int64_t started_ = 0;
  int64_t buckets_ = 0;
  int64_t last_buckets_ = 0;
};

}  // namespace trainyard::parallel
