// Runs the candidates for a product on memory of their own, and compares their times.
#include "worker/engine/backend/cuda/blas/autotune.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "worker/engine/backend/cuda/kernels/norm.h"
#include "worker/engine/backend/cuda/tuning/agreement.h"
#include "worker/engine/backend/cuda/tuning/bench.h"

namespace trainyard::engine::cuda::blas {
namespace {

int64_t SumsOf(const MatmulProblem& problem) {
  if (problem.summed == Summed::kNone) return 0;
  return problem.summed == Summed::kA ? problem.m : problem.n;
}

absl::Status AllocateSums(const MatmulProblem& problem, Bench& bench, MatmulMemory& memory) {
  const int64_t sums = SumsOf(problem);
  if (sums == 0) return absl::OkStatus();
  TY_ASSIGN_OR_RETURN(void* const at, bench.Allocate(sums * SizeOf(Type::kF32)));
  TY_ASSIGN_OR_RETURN(void* const tickets, bench.Allocate(kNormTickets));
  memory.sums = static_cast<float*>(at);
  memory.tickets = static_cast<uint32_t*>(tickets);
  if (cudaMemsetAsync(tickets, 0, kNormTickets, bench.stream()) == cudaSuccess) {
    return absl::OkStatus();
  }
  return absl::InternalError("the tickets of a measurement cannot be cleared");
}

// Allocates the operands of the problem.
absl::StatusOr<MatmulMemory> AllocateFor(const MatmulProblem& problem, int64_t workspace_bytes,
                                         Bench& bench) {
  const Extents extents = ExtentsOf(problem);
  const int64_t of_output = SizeOf(problem.output);
  MatmulMemory memory;
  TY_ASSIGN_OR_RETURN(memory.a,
                      bench.Allocate(extents.a_rows * problem.a_stride * SizeOf(problem.input)));
  TY_ASSIGN_OR_RETURN(memory.b,
                      bench.Allocate(extents.b_rows * problem.b_stride * SizeOf(problem.input)));
  TY_ASSIGN_OR_RETURN(memory.addend, bench.Allocate(problem.m * problem.addend_stride * of_output));
  TY_ASSIGN_OR_RETURN(memory.bias, bench.Allocate(problem.bias ? problem.n * of_output : 0));
  TY_ASSIGN_OR_RETURN(memory.aux, bench.Allocate(problem.m * problem.aux_stride * of_output));
  TY_ASSIGN_OR_RETURN(memory.d, bench.Allocate(problem.m * problem.d_stride * of_output));
  TY_RETURN_IF_ERROR(AllocateSums(problem, bench, memory));
  TY_ASSIGN_OR_RETURN(memory.workspace, bench.Allocate(workspace_bytes));
  return memory;
}

// Returns what the candidates write.
std::vector<Output> OutputsOf(const MatmulProblem& problem, const MatmulMemory& memory) {
  const int64_t row = problem.m * SizeOf(problem.output);
  const bool is_gelu =
      problem.activation == Activation::kGelu || problem.activation == Activation::kGeluGradient;
  // A sum may also have an addend and the bias.
  Exactness exactness = {.type = problem.output,
                         .factor_roundoff = problem.tf32 ? kTf32Roundoff : 0,
                         .length = problem.k + 2};
  // A candidate may round what GELU or its gradient changes.
  if (is_gelu) exactness.factor_roundoff += UnitRoundoff(problem.output);
  std::vector<Output> outputs = {
      {.data = memory.d, .bytes = row * problem.d_stride, .exactness = exactness}};
  if (memory.aux != nullptr && problem.activation == Activation::kGelu) {
    outputs.push_back(
        {.data = memory.aux, .bytes = row * problem.aux_stride, .exactness = exactness});
  }
  if (memory.sums != nullptr) {
    outputs.push_back({.data = memory.sums,
                       .bytes = SumsOf(problem) * SizeOf(Type::kF32),
                       .exactness = {.length = problem.k}});
  }
  return outputs;
}

std::string NameOf(size_t candidate) {
  return absl::StrCat("proposal ", candidate + 1);
}

// Returns for each candidate whether it differs from those that agree.
absl::StatusOr<std::vector<bool>> FindDifferent(const MatmulProblem& problem,
                                                const MatmulMemory& memory, Bench& bench,
                                                const std::function<absl::Status(size_t)>& run,
                                                PlanRecord& record) {
  TY_ASSIGN_OR_RETURN(const Agreement agreement,
                      CompareCandidates(bench, OutputsOf(problem, memory),
                                        static_cast<size_t>(record.candidates), run));
  record.compared_with = agreement.compared_with();
  record.difference = agreement.largest();
  std::vector<bool> differ(agreement.differences.size(), false);
  for (size_t i = 0; i < differ.size(); ++i) {
    differ[i] = agreement.Differs(i);
    if (!differ[i]) continue;
    record.refused.push_back(
        absl::StrCat(NameOf(i), " differs from ", NameOf(agreement.reference.value_or(0)), " by ",
                     agreement.differences[i], " times what rounding explains"));
    LogWarning("a proposal of cuBLASLt's computes something else than others, and is refused",
               {{"problem", record.problem}, {"reason", record.refused.back()}});
  }
  return differ;
}

}  // namespace

absl::StatusOr<int> FastestCandidate(const MatmulProblem& problem, PlanRecord& record,
                                     const RunCandidate& run) {
  Bench bench;
  if (!bench.Open().ok()) return -1;
  const auto memory = AllocateFor(problem, record.workspace_bytes, bench);
  if (!memory.ok()) return -1;
  const auto count = static_cast<size_t>(record.candidates);
  const auto run_one = [&](size_t i) { return run(static_cast<int>(i), *memory, bench.stream()); };
  std::vector<bool> is_refused(count, false);
  if (record.is_verified) {
    TY_ASSIGN_OR_RETURN(is_refused, FindDifferent(problem, *memory, bench, run_one, record));
  }
  int fastest = -1;
  for (size_t i = 0; i < count; ++i) {
    if (is_refused[i]) continue;
    const auto time = bench.Microseconds([&] { return run_one(i); });
    if (!time.ok()) TY_RETURN_IF_ERROR(bench.CheckDevice(time.status()));
    if (!time.ok() || (fastest >= 0 && *time >= record.microseconds)) continue;
    fastest = static_cast<int>(i);
    record.microseconds = *time;
  }
  record.engine = NameOf(static_cast<size_t>(std::max(fastest, 0)));
  // The error is cleared here, so that the next launch does not find it.
  (void)cudaGetLastError();
  return fastest;
}

}  // namespace trainyard::engine::cuda::blas
