// Runs the calls that follow the gradients of a step: partial sums, and the update, at once or
// range by range.
#include "common/base/status_macros.h"
#include "worker/engine/backend/cpu/cpu_executable.h"

#include <algorithm>
#include <limits>

#include "common/base/check.h"
#include "worker/engine/backend/cpu/kernels.h"
#include "worker/engine/backend/cpu/parallel.h"

namespace trainyard::engine::cpu {

absl::Span<float> CpuExecutable::sums(int slot) {
  TY_CHECK(slot >= 0 && slot < exchanged_.sum_slots());
  return {exchanged_.slot(slot), static_cast<size_t>(layout_.size)};
}

absl::Status CpuExecutable::StoreSums(int slot) {
  const absl::Span<float> to = sums(slot);
  ParallelChunks(options_.threads, layout_.size, [&](int64_t begin, int64_t count) {
    float* const from = exchanged_.reduction() + begin;
    std::copy_n(from, count, to.begin() + begin);
    std::fill_n(from, count, 0.0f);
  });
  has_sums_ = false;
  return absl::OkStatus();
}

absl::Status CpuExecutable::AddSums(int slot, int64_t begin, int64_t end) {
  TY_CHECK(begin >= 0 && begin <= end && end <= layout_.size);
  const float* const terms = sums(slot).data() + begin;
  float* const target = exchanged_.reduction() + begin;
  const Kernels<float>& kernels = BestKernels<float>();
  ParallelChunks(options_.threads, end - begin, [&](int64_t offset, int64_t count) {
    // A sum of two has no order, so the slot may be the right operand.
    kernels.accumulate(terms + offset, target + offset, count);
  });
  return absl::OkStatus();
}

absl::Status CpuExecutable::BeginUpdate(double lr) {
  updater_.Begin(lr, exchanged_.parameters(), exchanged_.reduction());
  return absl::OkStatus();
}

absl::Status CpuExecutable::UpdateRange(int64_t begin, int64_t end) {
  updater_.Apply(begin, end, exchanged_.parameters(), exchanged_.reduction());
  return absl::OkStatus();
}

absl::Status CpuExecutable::StartUpdate(double lr) {
  updater_.Begin(lr, exchanged_.parameters(), exchanged_.reduction());
  updater_.Apply(0, layout_.gradient_elements, exchanged_.parameters(), exchanged_.reduction());
  return EndUpdate();
}

absl::Status CpuExecutable::EndUpdate() {
  float* const sums = exchanged_.reduction();
  updated_ = {sums[layout_.loss_offset], sums[layout_.correct_offset]};
  if (!updater_.End(sums)) {
    updated_.loss = std::numeric_limits<double>::quiet_NaN();
  }
  FoldRunningStatistics();
  std::fill(sums + layout_.gradient_elements, sums + layout_.size, 0.0f);
  has_sums_ = false;
  weights_.Invalidate();
  return absl::OkStatus();
}

absl::Status CpuExecutable::CompleteStates(const CompleteState& complete, bool) {
  for (const absl::Span<float> state : updater_.state().parameter_states()) {
    TY_RETURN_IF_ERROR(complete(state));
  }
  return absl::OkStatus();
}

void CpuExecutable::FoldRunningStatistics() {
  const float* const sums = exchanged_.reduction();
  for (const BatchStatistics& statistics : training_.statistics) {
    for (ValueId target : {statistics.running_mean, statistics.running_variance}) {
      const ReductionEntry& entry = layout_.entry(target);
      const double share = statistics.momentum;
      for (int64_t c = 0; c < entry.count; ++c) {
        float& running = statistics_.as<float>()[entry.offset - layout_.gradient_elements + c];
        running = static_cast<float>((1 - share) * running + share * sums[entry.offset + c]);
      }
    }
  }
}

}  // namespace trainyard::engine::cpu
