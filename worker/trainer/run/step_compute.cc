// Takes sums of replicas range by range as backward finishes them, so that they can leave for the
// other ranks while the rest is still computed.
#include "worker/trainer/run/step_compute.h"

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"

namespace trainyard::trainer {

absl::Status StepCompute::Run(const std::vector<Part>& parts, const Ready& ready) {
  const absl::Duration start = clock_.Uptime();
  told_time_ = absl::ZeroDuration();
  is_told_ = ready != nullptr;
  TY_RETURN_IF_ERROR(Compute(parts, ready));
  compute_time_.reset();
  if (executable_.memory_kind() == engine::MemoryKind::kHost) {
    compute_time_ = clock_.Uptime() - start - told_time_;
  }
  return absl::OkStatus();
}

absl::Status StepCompute::Compute(const std::vector<Part>& parts, const Ready& ready) {
  if (sums_.has_value()) return RunReplicas(parts, ready);
  for (size_t i = 0; i < parts.size(); ++i) {
    const bool is_last = i + 1 == parts.size();
    TY_RETURN_IF_ERROR(Accumulate(parts[i], {}, is_last ? ready : Ready()));
  }
  if (!parts.empty()) return absl::OkStatus();
  if (!syncs_statistics_) return Tell(ready, size());
  return RunPass(
      [this](const engine::ReadyCallback& on_ready) {
        return executable_.TakePartInStatistics(on_ready);
      },
      {}, ready);
}

// A replica without rows counts as zeros, so that the sums are the same whichever rank hosts it.
absl::Status StepCompute::RunReplicas(const std::vector<Part>& parts, const Ready& ready) {
  size_t next = 0;
  for (size_t i = 0; i < sums_->replicas.size(); ++i) {
    const parallel::ReplicaSum& sum = sums_->replicas[i];
    const bool is_last_replica = i + 1 == sums_->replicas.size();
    const auto is_of_replica = [&](size_t part) {
      return part < parts.size() && parts[part].replica == static_cast<int>(i);
    };
    if (!is_of_replica(next)) {
      TY_RETURN_IF_ERROR(
          executable_.WriteReduction(std::vector<float>(static_cast<size_t>(size()))));
      TY_RETURN_IF_ERROR(AddSlots(sum.add, 0, size()));
      if (is_last_replica) TY_RETURN_IF_ERROR(Tell(ready, size()));
    }
    for (; is_of_replica(next); ++next) {
      const bool is_last_part = !is_of_replica(next + 1);
      TY_RETURN_IF_ERROR(Accumulate(parts[next], is_last_part ? sum.add : std::vector<int>(),
                                    is_last_part && is_last_replica ? ready : Ready()));
    }
    if (sum.store >= 0) TY_RETURN_IF_ERROR(executable_.sum_slots()->StoreSums(sum.store));
  }
  TY_CHECK(next == parts.size());
  return absl::OkStatus();
}

// Adds the slots range by range as ranges become final, so that what waits for them need not wait
// for the rest.
absl::Status StepCompute::Accumulate(const Part& part, const std::vector<int>& slots,
                                     const Ready& ready) {
  std::optional<Trace::Span> span;
  // A device has only been told what to do when this returns. The exchange knows its times.
  const bool is_on_host = executable_.memory_kind() == engine::MemoryKind::kHost;
  if (trace_.is_on() && (is_on_host || !is_told_)) {
    span.emplace(trace_, Trace::Lane::kCompute, absl::StrCat("forward+backward ", part.replica));
  }
  return RunPass(
      [&](const engine::ReadyCallback& on_ready) {
        return executable_.Accumulate(part.rows, part.weight, on_ready);
      },
      slots, ready);
}

absl::Status StepCompute::RunPass(
    const std::function<absl::Status(const engine::ReadyCallback& on_ready)>& pass,
    const std::vector<int>& slots, const Ready& ready) {
  if (slots.empty() && !ready) return pass(/*on_ready=*/{});
  absl::Status status;
  const auto on_ready = [&](int64_t offset, int64_t count) {
    if (status.ok()) status = AddSlots(slots, offset, offset + count);
    if (status.ok()) status = Tell(ready, offset + count);
  };
  TY_RETURN_IF_ERROR(pass(on_ready));
  return status;
}

absl::Status StepCompute::AddSlots(const std::vector<int>& slots, int64_t begin, int64_t end) {
  for (const int slot : slots)
    TY_RETURN_IF_ERROR(executable_.sum_slots()->AddSums(slot, begin, end));
  return absl::OkStatus();
}

absl::Status StepCompute::Tell(const Ready& ready, int64_t end) {
  if (!ready) return absl::OkStatus();
  const absl::Duration start = clock_.Uptime();
  absl::Status status = ready(end);
  told_time_ += clock_.Uptime() - start;
  return status;
}

}  // namespace trainyard::trainer
