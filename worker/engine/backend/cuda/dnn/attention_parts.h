// Divides attention into parts of its rows, where cuDNN's workspace for all of them is too large.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/engine/backend/cuda/dnn/plan.h"
#include "worker/engine/backend/cuda/dnn/planner.h"
#include "worker/engine/backend/cuda/dnn/problem.h"
#include "worker/engine/backend/cuda/tuning/effort.h"

namespace trainyard::engine::cuda::dnn {

// The plans that together compute an attention. Each computes some of the rows, which do not depend
// on each other. The planner must outlive them.
class AttentionParts {
 public:
  // Finds as few parts as fit into the planner's workspace, of about equal size. Returns NOT_FOUND
  // if cuDNN cannot compute even a single row.
  static absl::StatusOr<AttentionParts> Find(Planner& planner, const AttentionProblem& problem,
                                             Effort effort);

  size_t count() const { return parts_.size(); }
  // Returns the workspace that Run needs. The parts use it one after the other.
  int64_t workspace_bytes() const;
  // Enqueues all parts on the stream. `memory` holds all rows. Errors are those of Plan::Run.
  absl::Status Run(const AttentionMemory& memory, void* workspace, cudaStream_t stream) const;

 private:
  struct Part {
    int64_t first_row = 0;
    const Plan* plan = nullptr;
  };

  explicit AttentionParts(const AttentionProblem& problem) : problem_(problem) {}
  // Divides the rows into parts of `rows`, and a smaller last one.
  static absl::StatusOr<AttentionParts> Divide(Planner& planner, const AttentionProblem& problem,
                                               int64_t rows, Effort effort);

  AttentionProblem problem_;
  std::vector<Part> parts_;
};

}  // namespace trainyard::engine::cuda::dnn
