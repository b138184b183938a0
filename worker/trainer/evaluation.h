// Loss and accuracy on the test split, divided over the ranks.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "common/base/env.h"
#include "worker/data/dataset.h"
#include "worker/data/prefetch.h"
#include "worker/engine/backend/backend.h"
#include "worker/parallel/communicator.h"

namespace trainyard::trainer {

struct EvaluationResult {
  // Over the labels of the split: of tokens, over each position of each sample.
  double loss = 0;      // mean
  double accuracy = 0;  // fraction in [0, 1]
  int64_t skipped = 0;  // corrupt samples
};

// A collective: every rank evaluates a contiguous part in batches of `max_rows` and all get the
// same result. Of `preparation` the augmentation is left out; corrupt samples that training would
// replace do not count. DATA_LOSS where none is left.
absl::StatusOr<EvaluationResult> Evaluate(const data::Dataset& dataset,
                                          const data::Preparation& preparation, int64_t max_rows,
                                          engine::Executable& executable,
                                          parallel::Communicator& communicator, Clock& clock);

}  // namespace trainyard::trainer
