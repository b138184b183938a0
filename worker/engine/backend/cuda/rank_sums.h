// Sums the statistics of batch norm over the ranks (CompileOptions::sum_statistics) where they lie,
// in the order of the stream.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/engine/backend/backend.h"
#include "worker/engine/backend/cuda/kernels/norm_ranks.h"
#include "worker/engine/backend/cuda/runtime/runtime.h"
#include "worker/engine/backend/device_sum.h"
#include "worker/engine/graph/step_graph.h"

namespace trainyard::engine::cuda {

// The sums. With SumBy, the host enqueues everything and waits for nothing. Without it, each layer
// takes its numbers to the host, waits for them, and sums them by CompileOptions::sum_statistics.
// The class is not thread-safe.
class RankSums {
 public:
  RankSums() = default;
  // Makes memory for the widest batch norm of the step, or none if nothing is to be summed. At most
  // `steps_ahead` steps that have ended are still on the device.
  static absl::StatusOr<RankSums> Create(const CompileOptions& options, const StepGraph& step,
                                         size_t steps_ahead, Backing backing);

  bool is_wanted() const { return sum_ != nullptr; }
  void SumBy(std::shared_ptr<DeviceSum> sum) { device_ = std::move(sum); }
  int64_t device_bytes() const { return slots_.bytes() + rows_.bytes() + found_.bytes(); }

  // A layer packs its numbers, sums them over the ranks, and merges what all ranks have brought.
  // Packing and merging are kernels that may be captured, and a sum may not.
  enum class Half { kForward, kBackward };
  absl::Status Sum(Half half, int64_t channels, cudaStream_t stream) const;

  // These are for the forward half. A rank without rows packs none of the [channels] numbers each,
  // and gets none. `merged` lacks `rows` and `too_few`.
  void PackMoments(int64_t rows, int64_t channels, const float* mean, const float* variance,
                   cudaStream_t stream) const;
  void MergeMoments(int64_t channels, MergedMoments merged, cudaStream_t stream) const;
  // These are for the backward half. `sums` holds two times [channels] numbers, NormSumsStride
  // apart, or is null on a rank that brings zeros.
  void PackSums(int64_t channels, const float* sums, cudaStream_t stream) const;
  void MergeSums(int64_t channels, float* sums, cudaStream_t stream) const;
  // Returns the memory of the device that holds the number of rows of all ranks, as of the last
  // MergeMoments.
  const float* rows() const { return rows_.as<float>(); }

  // Waits until `event`, or what was enqueued on the stream, has happened, at most until the ranks'
  // deadline. They return at once if no device sums, since then only the host waits for other
  // ranks.
  absl::Status Await(cudaEvent_t event) const;
  absl::Status AwaitStream(cudaStream_t stream) const;
  // Enqueues the copy to the host of what the step has found until here, which TakeRefusal reads.
  absl::Status Collect(cudaStream_t stream) const;
  // Does so for the whole step: what is enqueued from here on belongs to the next one.
  absl::Status EndStep(cudaStream_t stream);
  // Returns INVALID_ARGUMENT with a layer that was merged over less than two values per channel,
  // and its number of values, in the step that was ended `ends` calls of EndStep ago, or that has
  // not ended if `ends` is 0. The device must have done that step. The next call for it returns OK.
  absl::Status TakeRefusal(const StepGraph& step, size_t ends) const;

 private:
  // The host adds the sums of a backward half in f64, in the order of the ranks, and brings them
  // back in a single slot.
  RankSlots SlotsOf(Half half, int64_t channels) const;

  SumOverRanks sum_;
  int64_t rank_ = 0;
  int64_t ranks_ = 1;
  std::shared_ptr<DeviceSum> device_;
  DeviceBuffer slots_, rows_;
  PinnedBuffer on_host_;  // a copy of the slots
  // A TooFewValues that the layers write. Its address is part of graphs, so all steps share it.
  DeviceBuffer found_;
  // A copy for each step that the device may be at, since the host reads that of one step while the
  // device writes that of the next.
  PinnedBuffer too_few_;
  size_t steps_ = 1;  // that have one
  size_t at_ = 0;     // the step that has not ended
  Event done_;
};

}  // namespace trainyard::engine::cuda
