// Implements sums over the ranks around their transport, which is the device's or the host's.
#include "worker/engine/backend/cuda/rank_sums.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace trainyard::engine::cuda {
namespace {

int64_t WidestNorm(const StepGraph& step) {
  int64_t widest = 1;
  for (const Node& node : step.graph.nodes) {
    if (node.op != OpKind::kBatchNorm) continue;
    widest = std::max(widest, step.graph.value(node.inputs[0]).shape[0]);
  }
  return widest;
}

}  // namespace

absl::StatusOr<RankSums> RankSums::Create(const CompileOptions& options, const StepGraph& step,
                                          size_t steps_ahead, Backing backing) {
  RankSums sums;
  if (options.sum_statistics == nullptr) return sums;
  sums.sum_ = options.sum_statistics;
  sums.rank_ = options.statistics_rank;
  sums.ranks_ = options.statistics_ranks;
  const int64_t bytes = RankSlots{.ranks = sums.ranks_, .channels = WidestNorm(step)}.size() *
                        static_cast<int64_t>(sizeof(float));
  TY_ASSIGN_OR_RETURN(sums.slots_, DeviceBuffer::Create(bytes, backing));
  TY_ASSIGN_OR_RETURN(sums.rows_, DeviceBuffer::Create(sizeof(float), backing));
  TY_ASSIGN_OR_RETURN(sums.found_, DeviceBuffer::Create(sizeof(TooFewValues), backing));
  if (backing == Backing::kAddresses) return sums;
  TY_ASSIGN_OR_RETURN(sums.on_host_, PinnedBuffer::Create(bytes));
  sums.steps_ = steps_ahead + 1;
  TY_ASSIGN_OR_RETURN(sums.too_few_, PinnedBuffer::Create(
                                         static_cast<int64_t>(sums.steps_ * sizeof(TooFewValues))));
  TY_ASSIGN_OR_RETURN(sums.done_, CreateEvent());
  return sums;
}

RankSlots RankSums::SlotsOf(Half half, int64_t channels) const {
  RankSlots slots = {.values = slots_.as<float>(), .channels = channels};
  if (half == Half::kForward || device_ != nullptr) {
    slots.ranks = ranks_;
    slots.rank = rank_;
  }
  return slots;
}

void RankSums::PackMoments(int64_t rows, int64_t channels, const float* mean, const float* variance,
                           cudaStream_t stream) const {
  PackSlot(mean, variance, rows, SlotsOf(Half::kForward, channels), stream);
}

void RankSums::MergeMoments(int64_t channels, MergedMoments merged, cudaStream_t stream) const {
  merged.rows = rows_.as<float>();
  merged.too_few = found_.as<TooFewValues>();
  cuda::MergeMoments(SlotsOf(Half::kForward, channels), merged, stream);
}

void RankSums::PackSums(int64_t channels, const float* sums, cudaStream_t stream) const {
  const float* const second = sums == nullptr ? nullptr : sums + NormSumsStride(channels);
  PackSlot(sums, second, sums == nullptr ? 0 : 1, SlotsOf(Half::kBackward, channels), stream);
}

void RankSums::MergeSums(int64_t channels, float* sums, cudaStream_t stream) const {
  cuda::MergeSums(SlotsOf(Half::kBackward, channels), sums, sums + NormSumsStride(channels),
                  stream);
}

absl::Status RankSums::Sum(Half half, int64_t channels, cudaStream_t stream) const {
  const RankSlots slots = SlotsOf(half, channels);
  const auto count = static_cast<size_t>(slots.size());
  if (device_ != nullptr) return device_->Enqueue({slots.values, count}, stream);
  // The copy back of the layer before ends before this copy begins.
  auto* const host = on_host_.as<float>();
  TY_RETURN_IF_ERROR(CudaStatus(
      cudaMemcpyAsync(host, slots.values, count * sizeof(float), cudaMemcpyDeviceToHost, stream),
      "reading statistics"));
  TY_RETURN_IF_ERROR(CudaStatus(cudaStreamSynchronize(stream), "waiting for statistics"));
  std::vector<double> values(host, host + count);
  TY_RETURN_IF_ERROR(sum_(absl::MakeSpan(values)));
  std::transform(values.begin(), values.end(), host,
                 [](double value) { return static_cast<float>(value); });
  return CudaStatus(
      cudaMemcpyAsync(slots.values, host, count * sizeof(float), cudaMemcpyHostToDevice, stream),
      "writing statistics");
}

absl::Status RankSums::Await(cudaEvent_t event) const {
  return device_ == nullptr ? absl::OkStatus() : device_->Await(event);
}

absl::Status RankSums::AwaitStream(cudaStream_t stream) const {
  if (device_ == nullptr) return absl::OkStatus();
  TY_RETURN_IF_ERROR(CudaStatus(cudaEventRecord(done_.get(), stream), "waiting for the ranks"));
  return device_->Await(done_.get());
}

absl::Status RankSums::Collect(cudaStream_t stream) const {
  auto* const refusals = too_few_.as<TooFewValues>();
  if (refusals == nullptr) return absl::OkStatus();
  TY_RETURN_IF_ERROR(
      CudaStatus(cudaMemcpyAsync(refusals + at_, found_.as<TooFewValues>(), sizeof(TooFewValues),
                                 cudaMemcpyDeviceToHost, stream),
                 "reading what statistics refuse"));
  return CudaStatus(cudaMemsetAsync(found_.as<TooFewValues>(), 0, sizeof(TooFewValues), stream),
                    "clearing what statistics refuse");
}

absl::Status RankSums::EndStep(cudaStream_t stream) {
  TY_RETURN_IF_ERROR(Collect(stream));
  at_ = (at_ + 1) % steps_;
  return absl::OkStatus();
}

absl::Status RankSums::TakeRefusal(const StepGraph& step, size_t ends) const {
  auto* const refusals = too_few_.as<TooFewValues>();
  if (refusals == nullptr) return absl::OkStatus();
  const TooFewValues few = std::exchange(refusals[(at_ + steps_ - ends) % steps_], {});
  if (few.layer == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("layer '", step.graph.nodes[few.layer - 1].name, "': batch_norm over ",
                   few.values, " values per channel, of all ranks; expected at least 2"));
}

}  // namespace trainyard::engine::cuda
