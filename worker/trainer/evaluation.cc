#include "worker/trainer/evaluation.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "common/base/status_macros.h"
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
                                          const data::Preparation& preparation, int64_t max_rows,
                                          engine::Executable& executable,
                                          parallel::Communicator& communicator, Clock& clock) {
  const parallel::RowRange mine =
      parallel::ReplicaRows(dataset.size(), communicator.rank(), communicator.world_size());
  const auto plan = [mine, max_rows](int64_t sequence) {
    const int64_t begin = std::min(mine.begin + sequence * max_rows, mine.end);
    std::vector<int64_t> indices(static_cast<size_t>(std::min(max_rows, mine.end - begin)));
    std::iota(indices.begin(), indices.end(), begin);
    return indices;
  };
  data::Preparation plain = preparation;
  plain.augmentation = {};
  if (plain.on_corrupt == data::OnCorrupt::kReplace) plain.on_corrupt = data::OnCorrupt::kLeaveOut;
  data::Prefetcher prefetcher(dataset, plain, plan, kPrefetchDepth, clock);
  int64_t skipped = 0;
  engine::Evaluation sum;
  while (const data::PreparedBatch* batch = prefetcher.Next()) {
    skipped += batch->skipped;
    if (batch->rows == 0) continue;
    TY_ASSIGN_OR_RETURN(const engine::Evaluation part,
                        executable.Evaluate({.inputs = batch->inputs, .labels = batch->labels}));
    sum.loss_sum += part.loss_sum;
    sum.correct += part.correct;
  }
  TY_RETURN_IF_ERROR(prefetcher.status());
  std::array<float, 6> message{};
  Split(sum.loss_sum, message[0], message[1]);
  Split(static_cast<double>(sum.correct), message[2], message[3]);
  Split(static_cast<double>(skipped), message[4], message[5]);
  TY_RETURN_IF_ERROR(communicator.AllReduce(absl::MakeSpan(message)));
  const auto joined = [&message](size_t at) {
    return static_cast<double>(message[at]) + static_cast<double>(message[at + 1]);
  };
  const double rows = static_cast<double>(dataset.size()) - joined(4);
  if (rows <= 0) return absl::DataLossError("no sample of the test split can be read");
  const double labels = rows * static_cast<double>(dataset.labels_per_row());
  return EvaluationResult{.loss = joined(0) / labels,
                          .accuracy = joined(2) / labels,
                          .skipped = static_cast<int64_t>(joined(4))};
}

}  // namespace trainyard::trainer
