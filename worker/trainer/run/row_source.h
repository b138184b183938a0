// Supplies the rows that a rank computes, step by step: read ahead, and cut into pieces that the
// executable takes at once.
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
// if batch norm keeps several apart.
struct Part {
  engine::Batch rows;
  double weight = 0;
  // The number of the replica among the hosted ones, counted from 0, or the first number if the
  // part contains several replicas.
  int replica = 0;
};

struct StepRows {
  // Ascending; there are none if a small last batch leaves no rows for this rank.
  std::vector<Part> parts;
  int64_t rows = 0;
  int64_t skipped = 0;  // corrupt samples that were skipped
};

// Returns the numbers of rows of all parts of the steps of `plan`, ascending and each once.
std::vector<int64_t> RowsOfParts(const StepSequence& plan, const CompiledModel& model);

// One thread uses it. Borrows the data, the model and the clock.
class RowSource {
 public:
  // `seed` positions the random choices about the rows in the run.
  RowSource(const LoadedData& data, const CompiledModel& model, uint64_t seed, Clock& clock)
      : data_(data), model_(model), seed_(seed), clock_(clock) {}

  // Continues with this 0-based step, by `plan`. What was read ahead for another plan is dropped.
  void Start(const StepSequence& plan, int64_t first_step);

  // Returns the rows of `step`. Steps must be requested in order, without gap. The result is
  // borrowed until the next call.
  absl::StatusOr<StepRows> Next(int64_t step);

  // Returns the time spent waiting for data, since the first start.
  absl::Duration waited() const;

 private:
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
