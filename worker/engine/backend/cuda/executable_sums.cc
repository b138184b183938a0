// Handles the sums of a CudaExecutable in parts: the slots that a fixed order of summation keeps
// beside the reduction, and updates of ranges as their sums arrive.
#include <utility>
#include <vector>

#include "common/base/check.h"
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

absl::Status CudaExecutable::CompleteStates(const CompleteState& complete, bool reads) {
  const auto count = static_cast<size_t>(layout_.gradient_elements);
  if (count == 0) return absl::OkStatus();
  if (!updater_.owned().is_whole()) {
    TY_RETURN_IF_ERROR(CompleteSlots(complete, reads));
  } else {
    for (int64_t slot = 0; slot < updater_.slot_count(); ++slot) {
      TY_RETURN_IF_ERROR(complete({updater_.slots() + slot * layout_.gradient_elements, count}));
    }
  }
  return table_.average_elements == 0 ? absl::OkStatus() : complete({updater_.averages(), count});
}

// A slot becomes whole in the memory of the gradients, which nobody needs between two steps.
absl::Status CudaExecutable::CompleteSlots(const CompleteState& complete, bool reads) {
  TY_CHECK(!has_sums_);
  const auto count = static_cast<size_t>(layout_.gradient_elements);
  const absl::Span<float> gradients = reduction().first(count);
  std::vector<float> whole(reads ? count * static_cast<size_t>(updater_.slot_count()) : 0);
  for (int64_t slot = 0; slot < updater_.slot_count(); ++slot) {
    const float* const memory = updater_.slots() + slot * updater_.owned().stride();
    for (const OwnedSlots::Part& part : updater_.owned().parts()) {
      const auto bytes = static_cast<size_t>(part.end - part.begin) * sizeof(float);
      TY_RETURN_IF_ERROR(
          CudaStatus(cudaMemcpyAsync(gradients.data() + part.begin, memory + part.place, bytes,
                                     cudaMemcpyDeviceToDevice, stream_.get()),
                     "gathering slots"));
    }
    TY_RETURN_IF_ERROR(complete(gradients));
    if (!reads) continue;
    TY_RETURN_IF_ERROR(CopyOut(
        gradients.data(), absl::MakeSpan(whole).subspan(static_cast<size_t>(slot) * count, count)));
  }
  whole_slots_ = std::move(whole);
  return CudaStatus(cudaMemsetAsync(gradients.data(), 0, count * sizeof(float), stream_.get()),
                    "clearing sums");
}

absl::Status CudaExecutable::BeginUpdate(double lr) {
  if (in_flight_.size() == kUpdatesInFlight) {
    return absl::FailedPreconditionError("finish an update before starting another");
  }
  updated_elements_ = 0;
  whole_slots_ = {};
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
