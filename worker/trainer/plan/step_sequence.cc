// Computes with steps, epochs and rows.
#include "worker/trainer/plan/step_sequence.h"

#include <algorithm>

#include "common/base/check.h"
#include "worker/data/sampler.h"

namespace trainyard::trainer {

using parallel::ReplicaRows;
using parallel::RowRange;

StepSequence::StepSequence(const StepSequenceOptions& options)
    : options_(options),
      steps_per_epoch_((options.dataset_size + options.global_batch - 1) / options.global_batch),
      total_steps_(options.steps > 0 ? options.steps : options.epochs * steps_per_epoch_),
      epochs_((total_steps_ + steps_per_epoch_ - 1) / steps_per_epoch_) {
  TY_CHECK(options.dataset_size >= 1 && options.global_batch >= 1 && total_steps_ >= 1);
}

StepSequence StepSequence::WithHosted(parallel::ReplicaRange hosted) const {
  StepSequenceOptions options = options_;
  options.hosted = hosted;
  return StepSequence(options);
}

int64_t StepSequence::Rows(int64_t step) const {
  const int64_t begin = (step % steps_per_epoch_) * options_.global_batch;
  return std::min(options_.global_batch, options_.dataset_size - begin);
}

RowRange StepSequence::HostedRows(int64_t step) const {
  const std::vector<RowRange> slices = ReplicaSlices(step);
  return {slices.front().begin, slices.back().end};
}

std::vector<RowRange> StepSequence::ReplicaSlices(int64_t step) const {
  std::vector<RowRange> slices;
  for (int replica = options_.hosted.begin; replica < options_.hosted.end; ++replica) {
    slices.push_back(ReplicaRows(Rows(step), replica, options_.replicas));
  }
  return slices;
}

std::vector<int64_t> StepSequence::HostedSamples(int64_t step) const {
  const data::Sampler sampler(options_.dataset_size, options_.seed, EpochOf(step));
  const int64_t begin = (step % steps_per_epoch_) * options_.global_batch;
  const RowRange rows = HostedRows(step);
  std::vector<int64_t> samples;
  samples.reserve(static_cast<size_t>(rows.size()));
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    samples.push_back(sampler.IndexAt(begin + row));
  }
  return samples;
}

std::optional<int64_t> StepSequence::StepWithRows(int64_t first, int64_t n) const {
  // Only the last step of an epoch is smaller, so the steps with rows are the first ones of each
  // epoch.
  const int64_t last = steps_per_epoch_ - 1;
  const int64_t busy = HostedRows(last).size() > 0 ? steps_per_epoch_
                       : HostedRows(0).size() > 0  ? last
                                                   : 0;
  if (busy == 0) return std::nullopt;
  const int64_t count = EpochOf(first) * busy + std::min(first % steps_per_epoch_, busy) + n;
  const int64_t step = count / busy * steps_per_epoch_ + count % busy;
  return step < total_steps_ ? std::optional<int64_t>(step) : std::nullopt;
}

int64_t StepSequence::max_hosted_rows() const {
  return HostedRows(0).size();
}

int64_t StepSequence::max_replica_rows() const {
  return ReplicaSlices(0).front().size();
}

}  // namespace trainyard::trainer
