// Adds up the times between pairs of events.
#include "worker/engine/backend/cuda/device_timer.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/status_macros.h"

namespace trainyard::engine::cuda {
namespace {

absl::Status MarkTime(const Event& event, cudaStream_t stream) {
  return CudaStatus(cudaEventRecord(event.get(), stream), "timing a stage");
}

absl::StatusOr<absl::Duration> TimeBetween(const Event& begin, const Event& end) {
  float milliseconds = 0;
  TY_RETURN_IF_ERROR(
      CudaStatus(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()), "timing a stage"));
  return absl::Milliseconds(static_cast<double>(milliseconds));
}

}  // namespace

absl::Status DeviceTimer::BeginStep(cudaStream_t stream) {
  Step& step = open();
  if (step.has_begun) return absl::OkStatus();
  if (step.begin == nullptr) {
    TY_ASSIGN_OR_RETURN(step.begin, CreateEvent(/*has_time=*/true));
  }
  step.has_begun = true;
  return MarkTime(step.begin, stream);
}

absl::Status DeviceTimer::Begin(cudaStream_t stream) {
  TY_RETURN_IF_ERROR(BeginStep(stream));
  Step& step = open();
  if (step.used == kPartsMax) TY_RETURN_IF_ERROR(AddUp(step));
  if (step.used == step.parts.size()) {
    Part part;
    TY_ASSIGN_OR_RETURN(part.begin, CreateEvent(/*has_time=*/true));
    TY_ASSIGN_OR_RETURN(part.end, CreateEvent(/*has_time=*/true));
    step.parts.push_back(std::move(part));
  }
  return MarkTime(step.parts[step.used].begin, stream);
}

absl::Status DeviceTimer::End(cudaStream_t stream) {
  Step& step = open();
  return MarkTime(step.parts[step.used++].end, stream);
}

void DeviceTimer::EndStep() {
  TY_CHECK(ended_ < kEndedMax);
  ++ended_;
}

absl::StatusOr<DeviceTimes> DeviceTimer::TakeStep() {
  TY_CHECK(ended_ > 0);
  Step& step = steps_[oldest_];
  oldest_ = (oldest_ + 1) % steps_.size();
  --ended_;
  step.has_begun = false;
  const size_t used = step.used;
  TY_RETURN_IF_ERROR(AddUp(step));
  DeviceTimes times = {.computed = std::exchange(step.added_up, absl::ZeroDuration())};
  if (used == 0) return times;
  TY_ASSIGN_OR_RETURN(times.total, TimeBetween(step.begin, step.parts[used - 1].end));
  return times;
}

absl::Status DeviceTimer::AddUp(Step& step) {
  const size_t count = std::exchange(step.used, 0);
  if (count == 0) return absl::OkStatus();
  TY_RETURN_IF_ERROR(
      CudaStatus(cudaEventSynchronize(step.parts[count - 1].end.get()), "timing a stage"));
  for (size_t i = 0; i < count; ++i) {
    TY_ASSIGN_OR_RETURN(const absl::Duration took,
                        TimeBetween(step.parts[i].begin, step.parts[i].end));
    step.added_up += took;
  }
  return absl::OkStatus();
}

}  // namespace trainyard::engine::cuda
