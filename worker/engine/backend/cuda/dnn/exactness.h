// Says which tensors of a problem an execution writes, and how exact they are.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/engine/backend/cuda/dnn/problem.h"
#include "worker/engine/backend/cuda/tuning/agreement.h"

namespace trainyard::engine::cuda::dnn {

struct WrittenSlot {
  int64_t id = 0;  // of the tensor in the graph of the problem, with all its parts
  Exactness exactness = {};
};

std::vector<WrittenSlot> WrittenBy(const ConvProblem& problem);
std::vector<WrittenSlot> WrittenBy(const AttentionProblem& problem);

}  // namespace trainyard::engine::cuda::dnn
