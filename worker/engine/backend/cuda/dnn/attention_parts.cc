// Finds how many rows of an attention fit into the workspace. The workspace of a plan grows with
// its rows: that of deterministic gradients by 24 MiB a row for GPT-2, since cuDNN then keeps the
// gradients of all scores.
#include "worker/engine/backend/cuda/dnn/attention_parts.h"

#include <algorithm>
#include <cstddef>

#include "common/base/status_macros.h"

namespace trainyard::engine::cuda::dnn {
namespace {

int64_t DivideRoundingUp(int64_t number, int64_t divisor) {
  return (number + divisor - 1) / divisor;
}

// Moves a pointer forward, unless it is null.
template <class T>
T* Advance(T* pointer, int64_t bytes) {
  if (pointer == nullptr) return nullptr;
  return reinterpret_cast<T*>(reinterpret_cast<std::byte*>(pointer) + bytes);
}

}  // namespace

absl::StatusOr<AttentionParts> AttentionParts::Find(Planner& planner,
                                                    const AttentionProblem& problem,
                                                    Effort effort) {
  absl::StatusOr<AttentionParts> whole = Divide(planner, problem, problem.rows, effort);
  if (!absl::IsNotFound(whole.status()) || problem.rows == 1) return whole;
  // A single row tells what each row takes.
  AttentionProblem single = problem;
  single.rows = 1;
  TY_ASSIGN_OR_RETURN(const Plan* const plan, planner.Find(single, Effort::kEstimate));
  const int64_t row_bytes = std::max<int64_t>(1, plan->facts().workspace_bytes);
  int64_t rows =
      std::clamp<int64_t>(planner.workspace_bytes_max() / row_bytes, 1, problem.rows - 1);
  while (true) {
    rows = DivideRoundingUp(problem.rows, DivideRoundingUp(problem.rows, rows));
    absl::StatusOr<AttentionParts> parts = Divide(planner, problem, rows, effort);
    if (!absl::IsNotFound(parts.status()) || rows == 1) return parts;
    rows = rows / 2;
  }
}

absl::StatusOr<AttentionParts> AttentionParts::Divide(Planner& planner,
                                                      const AttentionProblem& problem, int64_t rows,
                                                      Effort effort) {
  AttentionParts parts(problem);
  for (int64_t row = 0; row < problem.rows; row += rows) {
    AttentionProblem part = problem;
    part.rows = std::min(rows, problem.rows - row);
    TY_ASSIGN_OR_RETURN(const Plan* const plan, planner.Find(part, effort));
    parts.parts_.push_back({.first_row = row, .plan = plan});
  }
  return parts;
}

int64_t AttentionParts::workspace_bytes() const {
  int64_t bytes = 0;
  for (const Part& part : parts_) bytes = std::max(bytes, part.plan->facts().workspace_bytes);
  return bytes;
}

absl::Status AttentionParts::Run(const AttentionMemory& memory, void* workspace,
                                 cudaStream_t stream) const {
  const int64_t y_bytes =
      problem_.positions * problem_.heads * problem_.width * SizeOf(problem_.type);
  const int64_t logsum_bytes = problem_.positions * problem_.heads * int64_t{sizeof(float)};
  for (const Part& part : parts_) {
    const int64_t row = part.first_row;
    TY_RETURN_IF_ERROR(
        part.plan->Run(AttentionMemory{.x = Advance(memory.x, row * 3 * y_bytes),
                                       .y = Advance(memory.y, row * y_bytes),
                                       .logsum = Advance(memory.logsum, row * logsum_bytes),
                                       .dy = Advance(memory.dy, row * y_bytes),
                                       .dx = Advance(memory.dx, row * 3 * y_bytes)},
                       workspace, stream));
  }
  return absl::OkStatus();
}

}  // namespace trainyard::engine::cuda::dnn
