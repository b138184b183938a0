// Loss and accuracy on the test split, divided over the ranks.
#pragma once

#include "absl/status/statusor.h"
#include "common/base/env.h"
#include "worker/data/dataset.h"
#include "worker/engine/backend/backend.h"
#include "worker/parallel/communicator.h"

namespace trainyard::trainer {

struct EvaluationResult {
  double loss = 0;      // mean over the split
  double accuracy = 0;  // fraction in [0, 1]
};

// A collective: every rank evaluates a contiguous part in batches of `max_rows` and all get the
// same result.
absl::StatusOr<EvaluationResult> Evaluate(const data::Dataset& dataset,
                                          const data::Normalization& normalization,
                                          int64_t max_rows, engine::Executable& executable,
                                          parallel::Communicator& communicator, Clock& clock);

}  // namespace trainyard::trainer
