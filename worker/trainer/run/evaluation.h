// Loss and accuracy on the test split, divided over the ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/env.h"
#include "trainyard/v1/spec.pb.h"
#include "worker/data/dataset.h"
#include "worker/data/prefetch.h"
#include "worker/engine/backend/backend.h"
#include "worker/parallel/communicator.h"
#include "worker/parallel/replicas.h"

namespace trainyard::trainer {

struct EvaluationResult {
  // Over the labels of the split: of tokens, over each position of each sample.
  double loss = 0;      // mean
  double accuracy = 0;  // fraction in [0, 1]
  double top5 = 0;      // fraction of labels among the five largest logits
  int64_t samples = 0;  // those that were evaluated
  int64_t skipped = 0;  // corrupt samples
};

// What the part of one rank adds up to. Whole numbers but the loss.
struct EvaluationSums {
  double loss = 0;
  double correct = 0;
  double top5 = 0;
  double labels = 0;
  double samples = 0;
  double skipped = 0;
};

// Signs of life: told after each batch how long the slowest one took so far, and nothing when all
// that is left is to wait for other ranks.
using OnBatch = std::function<absl::Status(std::optional<absl::Duration> slowest)>;

// Of `part` of `parts` in batches of `max_rows`. Of `preparation` the augmentation is left out;
// corrupt samples that training would replace do not count.
absl::StatusOr<EvaluationSums> EvaluatePart(const data::Dataset& dataset,
                                            const data::Preparation& preparation, int part,
                                            int parts, int64_t max_rows,
                                            engine::Executable& executable, Clock& clock,
                                            const OnBatch& on_batch = {});
// All parts, added up in their order: the same bits wherever that is done. DATA_LOSS
// where no sample is left.
absl::StatusOr<EvaluationResult> JoinParts(absl::Span<const EvaluationSums> parts);

// How the split is divided, and what of it this rank evaluates.
struct EvaluationShares {
  int parts = 1;
  parallel::ReplicaRange mine{.begin = 0, .end = 1};
  // Of ranks that evaluate the same parts together one counts them.
  bool counts = true;
};

// A collective: every rank evaluates its parts, and all get the same result.
absl::StatusOr<EvaluationResult> Evaluate(const data::Dataset& dataset,
                                          const data::Preparation& preparation,
                                          const EvaluationShares& shares, int64_t max_rows,
                                          engine::Executable& executable,
                                          parallel::Communicator& communicator, Clock& clock,
                                          const OnBatch& on_batch = {});

// "<prefix>loss", "<prefix>accuracy", "<prefix>top5" where there are more classes than five, and
// "<prefix>perplexity" of a model that predicts tokens.
std::map<std::string, double> EvaluationMetrics(const EvaluationResult& result,
                                                absl::string_view prefix,
                                                const v1::ModelSpec& model);

}  // namespace trainyard::trainer
