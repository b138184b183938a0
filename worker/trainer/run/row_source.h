// The rows that a rank computes, step by step, read ahead and cut into what the executable takes at
// once.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/env.h"
#include "worker/data/prefetch.h"
#include "worker/engine/backend/backend.h"
#include "worker/trainer/run/training.h"

namespace trainyard::trainer {

// Rows that one Accumulate takes, grouped by replica where batch norm keeps several apart, and
// their share of the global batch.
struct Part {
  engine::Batch rows;
  double weight = 0;
  // Among the hosted ones, from 0; of parts that stand for several replicas, the first.
  int replica = 0;
};

struct StepRows {
  std::vector<Part> parts;  // ascending; none where a small last batch leaves this rank without
  int64_t rows = 0;
  int64_t skipped = 0;  // corrupt samples that were passed over
};

// One thread uses it. Borrows the training and the clock.
class RowSource {
 public:
  RowSource(const Training& training, Clock& clock) : training_(training), clock_(clock) {}

  // Goes on with this 0-based step, by `plan`; what was read ahead for another plan is dropped.
  void Start(const StepPlan& plan, int64_t first_step);

  // Of `step`; steps are asked for in order, without gap. Borrowed until the next call.
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

  const Training& training_;
  Clock& clock_;
  StepPlan plan_{StepPlanOptions{.epochs = 1}};
  std::unique_ptr<data::Prefetcher> prefetcher_;
  std::vector<int64_t> groups_;   // rows of each replica of this step that has some
  absl::Duration waited_before_;  // by earlier prefetchers
};

}  // namespace trainyard::trainer
