#include "worker/trainer/evaluation.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "common/base/status_macros.h"
#include "worker/data/prefetch.h"
#include "worker/parallel/replicas.h"

namespace trainyard::trainer {
namespace {

constexpr int kPrefetchDepth = 2;

// Two floats carry 48 bits of a double: the sum over ranks keeps what matters of a sum over rows.
void Split(double value, float& high, float& low) {
  high = static_cast<float>(value);
  low = static_cast<float>(value - static_cast<double>(high));
}

}  // namespace

absl::StatusOr<EvaluationResult> Evaluate(const data::Dataset& dataset,
                                          const data::Normalization& normalization,
                                          int64_t max_rows, engine::Executable& executable,
                                          parallel::Communicator& communicator, Clock& clock) {
  const parallel::RowRange mine =
      parallel::ReplicaRows(dataset.size(), communicator.rank(), communicator.world_size());
  const auto plan = [mine, max_rows](int64_t sequence) {
    const int64_t begin = std::min(mine.begin + sequence * max_rows, mine.end);
    std::vector<int64_t> indices(static_cast<size_t>(std::min(max_rows, mine.end - begin)));
    std::iota(indices.begin(), indices.end(), begin);
    return indices;
  };
  data::Prefetcher prefetcher(dataset, normalization, plan, kPrefetchDepth, clock);
  engine::Evaluation sum;
  while (const data::PreparedBatch* batch = prefetcher.Next()) {
    TY_ASSIGN_OR_RETURN(const engine::Evaluation part,
                        executable.Evaluate({.inputs = batch->inputs, .labels = batch->labels}));
    sum.loss_sum += part.loss_sum;
    sum.correct += part.correct;
  }
  std::array<float, 4> message{};
  Split(sum.loss_sum, message[0], message[1]);
  Split(static_cast<double>(sum.correct), message[2], message[3]);
  TY_RETURN_IF_ERROR(communicator.AllReduce(absl::MakeSpan(message)));
  const auto total = static_cast<double>(dataset.size());
  return EvaluationResult{
      .loss = (static_cast<double>(message[0]) + static_cast<double>(message[1])) / total,
      .accuracy = (static_cast<double>(message[2]) + static_cast<double>(message[3])) / total};
}

}  // namespace trainyard::trainer
