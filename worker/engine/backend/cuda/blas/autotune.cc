// Runs the candidates for a product on memory of their own, and compares their times.
#include "worker/engine/backend/cuda/blas/autotune.h"

#include "common/base/status_macros.h"
#include "worker/engine/backend/cuda/tuning/bench.h"

namespace trainyard::engine::cuda::blas {
namespace {

// Allocates the operands of the problem.
absl::StatusOr<TuningMemory> AllocateFor(const MatmulProblem& problem, int64_t workspace_bytes,
                                         Bench& bench) {
  const Extents extents = ExtentsOf(problem);
  TuningMemory memory;
  TY_ASSIGN_OR_RETURN(memory.a,
                      bench.Allocate(extents.a_rows * problem.a_stride * SizeOf(problem.input)));
  TY_ASSIGN_OR_RETURN(memory.b,
                      bench.Allocate(extents.b_rows * problem.b_stride * SizeOf(problem.input)));
  TY_ASSIGN_OR_RETURN(memory.bias,
                      bench.Allocate(problem.bias ? problem.n * SizeOf(problem.output) : 0));
  TY_ASSIGN_OR_RETURN(memory.d,
                      bench.Allocate(problem.m * problem.d_stride * SizeOf(problem.output)));
  TY_ASSIGN_OR_RETURN(memory.workspace, bench.Allocate(workspace_bytes));
  return memory;
}

}  // namespace

absl::StatusOr<int> FastestCandidate(const MatmulProblem& problem, int64_t workspace_bytes,
                                     int count, const RunCandidate& run) {
  Bench bench;
  if (!bench.Open().ok()) return -1;
  const auto memory = AllocateFor(problem, workspace_bytes, bench);
  if (!memory.ok()) return -1;
  int fastest = -1;
  double fastest_time = 0;
  for (int i = 0; i < count; ++i) {
    const auto time = bench.Microseconds([&] { return run(i, *memory, bench.stream()); });
    if (!time.ok()) TY_RETURN_IF_ERROR(bench.CheckDevice(time.status()));
    if (!time.ok() || (fastest >= 0 && *time >= fastest_time)) continue;
    fastest = i;
    fastest_time = *time;
  }
  // The error is cleared here, so that the next launch does not find it.
  (void)cudaGetLastError();
  return fastest;
}

}  // namespace trainyard::engine::cuda::blas
