// Brings the rows that a rank computes, step by step: read ahead, and cut into what the executable
// takes at once.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/env.h"
#include "worker/data/prefetch.h"
#include "worker/engine/backend/backend.h"
#include "worker/parallel/replicas.h"
#include "worker/trainer/plan/data_setup.h"
#include "worker/trainer/plan/model_setup.h"
#include "worker/trainer/plan/step_sequence.h"

namespace trainyard::trainer {

// Rows that one Accumulate takes, and their share of the global batch. They are grouped by replica
// where batch norm keeps several apart.
struct Part {
  engine::Batch rows;
  double weight = 0;
  // Counted from 0 among the hosted ones; the first, where the part stands for several replicas.
  int replica = 0;
};

struct StepRows {
  std::vector<Part> parts;  // ascending; none where a small last batch leaves this rank without
  int64_t rows = 0;
  int64_t skipped = 0;  // corrupt samples that were passed over
};

// One thread uses it. Borrows the data, the model and the clock.
class RowSource {
 public:
  // `seed` positions the random choices about the rows in the run.
  RowSource(const LoadedData& data, const CompiledModel& model, uint64_t seed, Clock& clock)
      : data_(data), model_(model), seed_(seed), clock_(clock) {}

  // Goes on with this 0-based step, by `plan`; what was read ahead for another plan is dropped.
  void Start(const StepSequence& plan, int64_t first_step);

  // The rows of `step`. Steps are asked for in order, without gap. Borrowed until the next call.
  absl::StatusOr<StepRows> Next(int64_t step);

  // Time spent waiting for data, since the first start.
  absl::Duration waited() const;

 private:
  // Consecutive rows that may be computed as one batch.
  struct Slice {
    parallel::RowRange rows;
    int replica = 0;
    // groups_[first_group, first_group + groups)
    size_t first_group = 0;
    size_t groups = 1;
  };
  std::vector<Slice> Cut(int64_t step);

  const LoadedData& data_;
  const CompiledModel& model_;
  const uint64_t seed_;
  Clock& clock_;
  StepSequence plan_{StepSequenceOptions{.epochs = 1}};
  std::unique_ptr<data::Prefetcher> prefetcher_;
  std::vector<int64_t> groups_;   // rows of each replica of this step that has some
  absl::Duration waited_before_;  // by earlier prefetchers
};

}  // namespace trainyard::trainer
