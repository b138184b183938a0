// Evaluates loss and accuracy on the test split, which the ranks divide among them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

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
  // Loss and accuracy are taken over the labels of the split. Tokens have one at each position.
  double loss = 0;      // mean
  double accuracy = 0;  // fraction in [0, 1]
  double top5 = 0;      // fraction of labels among the five largest logits
  int64_t samples = 0;  // those that were evaluated
  int64_t skipped = 0;  // corrupt samples
};

// The sums over one part of the split. All but the loss are whole numbers.
struct EvaluationSums {
  double loss = 0;
  double correct = 0;
  double top5 = 0;
  double labels = 0;
  double samples = 0;
  double skipped = 0;
};

// Reports progress. It is called after each batch with the longest time that a batch has taken so
// far, and without a time when only waiting for other ranks is left.
using OnBatch = std::function<absl::Status(std::optional<absl::Duration> slowest)>;

// Evaluates one of `parts` parts in batches of `max_rows`. Samples are prepared as in training, but
// not augmented, and corrupt samples that training would replace do not count.
absl::StatusOr<EvaluationSums> EvaluatePart(const data::Dataset& dataset,
                                            const data::Preparation& preparation, int part,
                                            int parts, int64_t max_rows,
                                            engine::Executable& executable, Clock& clock,
                                            const OnBatch& on_batch = {});
// Adds up all parts in their order, so that the bits are the same wherever that is done. Returns
// DATA_LOSS if no sample is left.
absl::StatusOr<EvaluationResult> JoinParts(absl::Span<const EvaluationSums> parts);

// Says how the split is divided, and which parts of it this rank evaluates.
struct EvaluationShares {
  int parts = 1;
  parallel::ReplicaRange mine{.begin = 0, .end = 1};
  // False if several ranks evaluate the same parts together and another one counts the sums.
  bool counts = true;
};

// Adds to `sizes` the numbers of rows of the batches into which `rows` are cut.
void AddBatchSizes(int64_t rows, int64_t max_rows, std::set<int64_t>& sizes);

// Returns the numbers of rows of all batches that a rank with these shares evaluates, ascending and
// each once, if no sample is corrupt.
std::vector<int64_t> RowsOfEvaluation(int64_t dataset_size, const EvaluationShares& shares,
                                      int64_t max_rows);

// Evaluates. This is a collective in which every rank evaluates its parts. All get the same result.
absl::StatusOr<EvaluationResult> Evaluate(const data::Dataset& dataset,
                                          const data::Preparation& preparation,
                                          const EvaluationShares& shares, int64_t max_rows,
                                          engine::Executable& executable,
                                          parallel::Communicator& communicator, Clock& clock,
                                          const OnBatch& on_batch = {});

// Returns "<prefix>loss" and "<prefix>accuracy", also "<prefix>top5" if there are more than five
// classes, and "<prefix>perplexity" for a model that predicts tokens.
std::map<std::string, double> EvaluationMetrics(const EvaluationResult& result,
                                                absl::string_view prefix,
                                                const v1::ModelSpec& model);

}  // namespace trainyard::trainer
