// Says which samples this rank computes in which step. It is a pure function of the spec, the size
// of the data set and the replicas that the rank hosts, so that a run can resume at any step.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "worker/parallel/replicas.h"

namespace trainyard::trainer {

struct StepSequenceOptions {
  int64_t dataset_size = 1;
  int64_t global_batch = 1;
  // The length of the training: steps if that is positive, else epochs.
  int64_t epochs = 0;
  int64_t steps = 0;
  int replicas = 1;
  parallel::ReplicaRange hosted{.begin = 0, .end = 1};
  uint64_t seed = 1;
};

// Thread-safe, since it never changes. An epoch walks over all samples once, in the sampler's order
// of (seed, epoch). Its last step has what is left over, divided by the same rule.
class StepSequence {
 public:
  explicit StepSequence(const StepSequenceOptions& options);

  int64_t total_steps() const { return total_steps_; }
  int64_t steps_per_epoch() const { return steps_per_epoch_; }
  int64_t epochs() const { return epochs_; }
  int64_t EpochOf(int64_t step) const { return step / steps_per_epoch_; }

  // Returns the same steps for a rank that hosts these replicas.
  StepSequence WithHosted(parallel::ReplicaRange hosted) const;

  // Returns the number of rows in the global batch of 0-based `step`.
  int64_t Rows(int64_t step) const;
  // Returns those of them that this rank computes. They may be none in the last step of an epoch.
  parallel::RowRange HostedRows(int64_t step) const;
  // Returns the slices of the hosted replicas, in order. Some may be empty.
  std::vector<parallel::RowRange> ReplicaSlices(int64_t step) const;
  // Returns the indices in the data set of HostedRows(step).
  std::vector<int64_t> HostedSamples(int64_t step) const;

  // Returns the n-th step at or after `first` in which this rank has rows, or nothing past the end.
  std::optional<int64_t> StepWithRows(int64_t first, int64_t n) const;

  // Return the largest HostedRows, and the largest slice of one replica.
  int64_t max_hosted_rows() const;
  int64_t max_replica_rows() const;

 private:
  StepSequenceOptions options_;
  int64_t steps_per_epoch_;
  int64_t total_steps_;
  int64_t epochs_;
};

}  // namespace trainyard::trainer
