// Evaluates a split part by part and adds the parts up in one order on every rank.
#include "worker/trainer/run/evaluation.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/engine/backend/judge.h"
#include "worker/parallel/replicas.h"
#include "worker/trainer/plan/memory.h"
#include "worker/trainer/plan/spec.h"
#include "worker/trainer/run/row_form.h"

namespace trainyard::trainer {
namespace {

// A double travels as its bits, 16 in each of four floats, which hold them exactly. Every rank
// writes the sums of its own parts beside zeros for the others. So an all_reduce hands all of them
// to all ranks without rounding.
constexpr size_t kExactFloatsPerDouble = 4;
constexpr uint64_t kFloatBits = 16;
using Field = double EvaluationSums::*;
constexpr Field kFields[] = {&EvaluationSums::loss,    &EvaluationSums::correct,
                             &EvaluationSums::top5,    &EvaluationSums::labels,
                             &EvaluationSums::samples, &EvaluationSums::skipped};
constexpr size_t kFloatsPerPart = std::size(kFields) * kExactFloatsPerDouble;

void Pack(const EvaluationSums& sums, absl::Span<float> message) {
  for (size_t i = 0; i < message.size(); ++i) {
    const auto bits = std::bit_cast<uint64_t>(sums.*kFields[i / kExactFloatsPerDouble]);
    message[i] = static_cast<float>((bits >> (kFloatBits * (i % kExactFloatsPerDouble))) & 0xffff);
  }
}

EvaluationSums Unpack(absl::Span<const float> message) {
  EvaluationSums sums;
  for (size_t field = 0; field < std::size(kFields); ++field) {
    uint64_t bits = 0;
    for (size_t i = 0; i < kExactFloatsPerDouble; ++i) {
      bits |= static_cast<uint64_t>(message[field * kExactFloatsPerDouble + i]) << (kFloatBits * i);
    }
    sums.*kFields[field] = std::bit_cast<double>(bits);
  }
  return sums;
}

}  // namespace

absl::StatusOr<EvaluationSums> EvaluatePart(const data::Dataset& dataset,
                                            const data::Preparation& preparation, int part,
                                            int parts, int64_t max_rows,
                                            engine::Executable& executable, Clock& clock,
                                            const OnBatch& on_batch) {
  const parallel::RowRange mine = parallel::ReplicaRows(dataset.size(), part, parts);
  const auto plan = [mine, max_rows](int64_t sequence) {
    const int64_t begin = std::min(mine.begin + sequence * max_rows, mine.end);
    std::vector<int64_t> indices(static_cast<size_t>(std::min(max_rows, mine.end - begin)));
    std::iota(indices.begin(), indices.end(), begin);
    return indices;
  };
  data::Preparation plain = preparation;
  plain.augmentation = {};
  if (plain.on_corrupt == data::OnCorrupt::kReplace) plain.on_corrupt = data::OnCorrupt::kLeaveOut;
  plain.form = EvaluationForm(dataset, preparation);
  data::Prefetcher prefetcher(dataset, plain, plan, kEvaluationPrefetchDepth, clock);
  int64_t skipped = 0;
  engine::Evaluation sum;
  absl::Duration slowest;
  absl::Duration begin = clock.Uptime();
  while (const data::PreparedBatch* batch = prefetcher.Next()) {
    skipped += batch->skipped;
    if (batch->rows == 0) continue;
    TY_ASSIGN_OR_RETURN(const engine::Evaluation more,
                        executable.Evaluate(BatchOfRows(*batch, 0, batch->rows)));
    sum.loss_sum += more.loss_sum;
    sum.correct += more.correct;
    sum.top5 += more.top5;
    sum.rows += more.rows;
    const absl::Duration end = clock.Uptime();
    slowest = std::max(slowest, end - std::exchange(begin, end));
    if (on_batch) TY_RETURN_IF_ERROR(on_batch(slowest));
  }
  TY_RETURN_IF_ERROR(prefetcher.status());
  return EvaluationSums{.loss = sum.loss_sum,
                        .correct = static_cast<double>(sum.correct),
                        .top5 = static_cast<double>(sum.top5),
                        .labels = static_cast<double>(sum.rows),
                        .samples = static_cast<double>(mine.size() - skipped),
                        .skipped = static_cast<double>(skipped)};
}

absl::StatusOr<EvaluationResult> JoinParts(absl::Span<const EvaluationSums> parts) {
  EvaluationSums sum;
  for (const EvaluationSums& part : parts) {
    for (const Field field : kFields) sum.*field += part.*field;
  }
  if (sum.labels <= 0) return absl::DataLossError("no sample of the test split can be read");
  return EvaluationResult{.loss = sum.loss / sum.labels,
                          .accuracy = sum.correct / sum.labels,
                          .top5 = sum.top5 / sum.labels,
                          .samples = static_cast<int64_t>(sum.samples),
                          .skipped = static_cast<int64_t>(sum.skipped)};
}

void AddBatchSizes(int64_t rows, int64_t max_rows, std::set<int64_t>& sizes) {
  if (rows >= max_rows) sizes.insert(max_rows);
  if (rows % max_rows > 0) sizes.insert(rows % max_rows);
}

std::vector<int64_t> RowsOfEvaluation(int64_t dataset_size, const EvaluationShares& shares,
                                      int64_t max_rows) {
  std::set<int64_t> sizes;
  for (int part = shares.mine.begin; part < shares.mine.end; ++part) {
    AddBatchSizes(parallel::ReplicaRows(dataset_size, part, shares.parts).size(), max_rows, sizes);
  }
  return {sizes.begin(), sizes.end()};
}

absl::StatusOr<EvaluationResult> Evaluate(const data::Dataset& dataset,
                                          const data::Preparation& preparation,
                                          const EvaluationShares& shares, int64_t max_rows,
                                          engine::Executable& executable,
                                          parallel::Communicator& communicator, Clock& clock,
                                          const OnBatch& on_batch) {
  std::vector<float> message(static_cast<size_t>(shares.parts) * kFloatsPerPart);
  const auto slot = [&message](int part) {
    return absl::MakeSpan(message).subspan(static_cast<size_t>(part) * kFloatsPerPart,
                                           kFloatsPerPart);
  };
  for (int part = shares.mine.begin; part < shares.mine.end; ++part) {
    TY_ASSIGN_OR_RETURN(const EvaluationSums sums,
                        EvaluatePart(dataset, preparation, part, shares.parts, max_rows, executable,
                                     clock, on_batch));
    if (shares.counts) Pack(sums, slot(part));
  }
  if (on_batch) TY_RETURN_IF_ERROR(on_batch(std::nullopt));
  TY_RETURN_IF_ERROR(communicator.AllReduce(absl::MakeSpan(message)));
  std::vector<EvaluationSums> parts;
  parts.reserve(static_cast<size_t>(shares.parts));
  for (int part = 0; part < shares.parts; ++part) parts.push_back(Unpack(slot(part)));
  return JoinParts(parts);
}

std::map<std::string, double> EvaluationMetrics(const EvaluationResult& result,
                                                absl::string_view prefix,
                                                const v1::ModelSpec& model) {
  std::map<std::string, double> metrics{{absl::StrCat(prefix, "loss"), result.loss},
                                        {absl::StrCat(prefix, "accuracy"), result.accuracy}};
  const ModelEnds ends = EndsOf(model);
  if (ends.classes > engine::kTopCount) metrics[absl::StrCat(prefix, "top5")] = result.top5;
  if (ends.vocabulary > 0) metrics[absl::StrCat(prefix, "perplexity")] = std::exp(result.loss);
  return metrics;
}

}  // namespace trainyard::trainer
