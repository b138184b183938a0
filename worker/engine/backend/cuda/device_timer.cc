// Adds up the times between pairs of events.
#include "worker/engine/backend/cuda/device_timer.h"

#include <utility>

#include "common/base/status_macros.h"

namespace trainyard::engine::cuda {

absl::Status DeviceTimer::Begin(cudaStream_t stream) {
  if (used_ == kPartsMax) TY_RETURN_IF_ERROR(AddUp());
  if (used_ == parts_.size()) {
    Part part;
    TY_ASSIGN_OR_RETURN(part.begin, CreateEvent(/*has_time=*/true));
    TY_ASSIGN_OR_RETURN(part.end, CreateEvent(/*has_time=*/true));
    parts_.push_back(std::move(part));
  }
  return CudaStatus(cudaEventRecord(parts_[used_].begin.get(), stream), "timing a stage");
}

absl::Status DeviceTimer::End(cudaStream_t stream) {
  return CudaStatus(cudaEventRecord(parts_[used_++].end.get(), stream), "timing a stage");
}

absl::StatusOr<absl::Duration> DeviceTimer::TakeTotal() {
  TY_RETURN_IF_ERROR(AddUp());
  return std::exchange(total_, absl::ZeroDuration());
}

absl::Status DeviceTimer::AddUp() {
  const size_t count = std::exchange(used_, 0);
  if (count == 0) return absl::OkStatus();
  TY_RETURN_IF_ERROR(
      CudaStatus(cudaEventSynchronize(parts_[count - 1].end.get()), "timing a stage"));
  for (size_t i = 0; i < count; ++i) {
    float milliseconds = 0;
    TY_RETURN_IF_ERROR(
        CudaStatus(cudaEventElapsedTime(&milliseconds, parts_[i].begin.get(), parts_[i].end.get()),
                   "timing a stage"));
    total_ += absl::Milliseconds(static_cast<double>(milliseconds));
  }
  return absl::OkStatus();
}

}  // namespace trainyard::engine::cuda
