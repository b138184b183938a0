#include "worker/engine/backend/cuda/dnn/attention_graph.h"

namespace trainyard::engine::cuda::dnn {

absl::StatusOr<Graph> BuildAttentionGraph(const AttentionProblem&, cudnnHandle_t) {
  return absl::UnimplementedError("attention");
}

}  // namespace trainyard::engine::cuda::dnn
