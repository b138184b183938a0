// Which samples this rank computes in which step. Pure: a function of the spec, the data set's size
// and the rank's hosted replicas, so that any step can be entered anew after a resume.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "worker/parallel/replicas.h"

namespace trainyard::trainer {

struct StepPlanOptions {
  int64_t dataset_size = 1;
  int64_t global_batch = 1;
  // Length: epochs, or steps where positive.
  int64_t epochs = 0;
  int64_t steps = 0;
  int replicas = 1;
  parallel::ReplicaRange hosted{.begin = 0, .end = 1};
  uint64_t seed = 1;
};

// Thread-safe: never changes. An epoch walks over all samples once, in the sampler's order of
// (seed, epoch); its last step has what is left over, split by the same rule.
class StepPlan {
 public:
  explicit StepPlan(const StepPlanOptions& options);

  int64_t total_steps() const { return total_steps_; }
  int64_t steps_per_epoch() const { return steps_per_epoch_; }
  int64_t epochs() const { return epochs_; }
  int64_t EpochOf(int64_t step) const { return step / steps_per_epoch_; }

  // The same steps of a rank that hosts these.
  StepPlan WithHosted(parallel::ReplicaRange hosted) const;

  // Rows of the global batch of 0-based `step`.
  int64_t Rows(int64_t step) const;
  // Those of them that this rank computes; may be none in the last step of an epoch.
  parallel::RowRange HostedRows(int64_t step) const;
  // The slices of the hosted replicas, in order; some may be empty.
  std::vector<parallel::RowRange> ReplicaSlices(int64_t step) const;
  // Indices in the data set of HostedRows(step).
  std::vector<int64_t> HostedSamples(int64_t step) const;

  // The n-th step at or after `first` in which this rank has rows; nothing past the end.
  std::optional<int64_t> StepWithRows(int64_t first, int64_t n) const;

  // Largest HostedRows, and largest slice of one replica.
  int64_t max_hosted_rows() const;
  int64_t max_replica_rows() const;

 private:
  StepPlanOptions options_;
  int64_t steps_per_epoch_;
  int64_t total_steps_;
  int64_t epochs_;
};

}  // namespace trainyard::trainer
