// Passes all replicas of a step to the pipeline at once, so that no stage waits for the end of one
// replica before it begins the next.
#include "worker/trainer/run/staged_compute.h"

#include "common/base/status_macros.h"

namespace trainyard::trainer {

absl::Status StagedCompute::Compute(const std::vector<Part>& parts, const Ready& ready) {
  if (!AreMicrobatches(parts)) return StepCompute::Compute(parts, ready);
  std::vector<PipelineExecutable::Part> microbatches;
  microbatches.reserve(parts.size());
  for (const Part& part : parts) microbatches.push_back({part.rows, part.weight});
  // The sums of the last replica become final range by range.
  absl::Status status;
  const auto on_ready = [&](int64_t offset, int64_t count) {
    if (sums().has_value() && status.ok()) {
      status = AddSlots(sums()->replicas.back().add, offset, offset + count);
    }
    if (status.ok()) status = Tell(ready, offset + count);
  };
  const auto sum_up = [&](size_t part) -> absl::Status {
    TY_RETURN_IF_ERROR(status);
    if (!sums().has_value()) return absl::OkStatus();
    const parallel::ReplicaSum& sum = sums()->replicas[part];
    if (part + 1 < parts.size()) TY_RETURN_IF_ERROR(AddSlots(sum.add, 0, size()));
    return sum.store >= 0 ? stage_.sum_slots()->StoreSums(sum.store) : absl::OkStatus();
  };
  return stage_.AccumulateAll(microbatches, on_ready, sum_up);
}

// Every part must be a replica of its own. In a bitwise run no replica may be without rows, since
// it would count as zeros in the sums.
bool StagedCompute::AreMicrobatches(const std::vector<Part>& parts) const {
  if (!computes_replicas_alone_) return false;
  if (sums().has_value() && parts.size() != sums()->replicas.size()) return false;
  for (size_t i = 1; i < parts.size(); ++i) {
    if (parts[i].replica == parts[i - 1].replica) return false;
  }
  return !parts.empty();
}

}  // namespace trainyard::trainer
