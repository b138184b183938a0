// Handles the sums of a CudaExecutable in parts: the slots that a fixed order of summation keeps
// beside the reduction, and updates of ranges as their sums arrive.
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/engine/backend/cuda/cuda_executable.h"
#include "worker/engine/backend/cuda/kernels/update.h"

namespace trainyard::engine::cuda {

absl::Span<float> CudaExecutable::sums(int slot) {
  return {sums_[static_cast<size_t>(slot)].as<float>(), static_cast<size_t>(layout_.size)};
}

absl::Status CudaExecutable::StoreSums(int slot) {
  const absl::Span<float> kept = sums(slot);
  const size_t bytes = kept.size() * sizeof(float);
  TY_RETURN_IF_ERROR(CudaStatus(cudaMemcpyAsync(kept.data(), reduction_.data(), bytes,
                                                cudaMemcpyDeviceToDevice, stream_.get()),
                                "keeping sums"));
  has_sums_ = false;
  return CudaStatus(cudaMemsetAsync(reduction_.data(), 0, bytes, stream_.get()), "clearing sums");
}

absl::Status CudaExecutable::AddSums(int slot, int64_t begin, int64_t end) {
  AddLeft(sums(slot).data() + begin, reduction_.as<float>() + begin, end - begin, stream_.get());
  return LaunchStatus("adding sums");
}

absl::Span<float> CudaExecutable::parameters() {
  return {parameters_.as<float>(), static_cast<size_t>(layout_.gradient_elements)};
}

std::vector<absl::Span<float>> CudaExecutable::parameter_states() {
  std::vector<absl::Span<float>> states;
  const auto count = static_cast<size_t>(layout_.gradient_elements);
  const auto add_all = [&](float* first, int64_t elements) {
    for (int64_t i = 0; i + layout_.gradient_elements <= elements; i += layout_.gradient_elements) {
      states.emplace_back(first + i, count);
    }
  };
  if (count == 0) return states;
  // The count of steps may lie behind the slots.
  add_all(updater_.slots(), table_.slot_elements);
  add_all(updater_.averages(), table_.average_elements);
  return states;
}

absl::Status CudaExecutable::BeginUpdate(double lr) {
  if (in_flight_.size() == kUpdatesInFlight) {
    return absl::FailedPreconditionError("finish an update before starting another");
  }
  updated_elements_ = 0;
  return staging_.SendRate(static_cast<float>(lr), waiter_, stream_.get());
}

absl::Status CudaExecutable::UpdateRange(int64_t begin, int64_t end) {
  updated_elements_ += end - begin;
  updater_.EnqueueRange(begin, end, parameters_.as<float>(), reduction_.as<float>(),
                        staging_.device_control(), stream_.get());
  return LaunchStatus("updating");
}

absl::Status CudaExecutable::EndUpdate() {
  updater_.EnqueueEnd(parameters_.as<float>(), statistics_.as<float>(), reduction_.as<float>(),
                      staging_.device_control(), Results(), weights_, stream_.get());
  TY_RETURN_IF_ERROR(LaunchStatus("updating"));
  if (updated_elements_ < layout_.gradient_elements) {
    // The rest was updated elsewhere, so its sums are not clear, and its packed copies are out of
    // date.
    are_weights_stale_ = true;
    TY_RETURN_IF_ERROR(
        CudaStatus(cudaMemsetAsync(reduction_.data(), 0,
                                   static_cast<size_t>(layout_.gradient_elements) * sizeof(float),
                                   stream_.get()),
                   "clearing sums"));
  }
  return MarkUpdate();
}

}  // namespace trainyard::engine::cuda
