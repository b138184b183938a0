// Implements what an executable does if its backend has no better way.
#include "worker/engine/backend/executable.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"

namespace trainyard::engine {

std::string FallbackText(const Fallback& fallback) {
  return absl::StrCat(fallback.layer, " ", fallback.op, ": ", fallback.reason);
}

absl::Status Executable::ReadReduction(absl::Span<float> sums) {
  TY_CHECK(memory_kind() == MemoryKind::kHost && sums.size() == reduction().size());
  std::copy(reduction().begin(), reduction().end(), sums.begin());
  return absl::OkStatus();
}

absl::Status Executable::WriteReduction(absl::Span<const float> sums) {
  TY_CHECK(memory_kind() == MemoryKind::kHost && sums.size() == reduction().size());
  std::copy(sums.begin(), sums.end(), reduction().begin());
  return absl::OkStatus();
}

absl::Status Executable::CompileRows(absl::Span<const int64_t> training,
                                     absl::Span<const int64_t> evaluation) {
  for (const int64_t rows : training) TY_RETURN_IF_ERROR(CompileTraining(rows));
  for (const int64_t rows : evaluation) TY_RETURN_IF_ERROR(CompileEvaluation(rows));
  return absl::OkStatus();
}

absl::Status Executable::TakePartInStatistics(const ReadyCallback&) {
  return absl::FailedPreconditionError("statistics of this rank; compile with sum_statistics");
}

absl::Status Executable::SumStatisticsBy(std::shared_ptr<DeviceSum>) {
  return absl::FailedPreconditionError("no statistics of all ranks are kept on a device");
}

absl::StatusOr<StepMetrics> Executable::Update(double lr) {
  TY_RETURN_IF_ERROR(StartUpdate(lr));
  return FinishUpdate();
}

absl::Status Executable::StartStep(const Batch& batch, double lr) {
  TY_RETURN_IF_ERROR(Accumulate(batch, 1, /*on_ready=*/{}));
  return StartUpdate(lr);
}

absl::StatusOr<Inspection> Executable::Inspect() const {
  return absl::FailedPreconditionError("compile with CompileOptions::inspect");
}

}  // namespace trainyard::engine
