// Defines a plan that the planner keeps: cuDNN's engine with the graph that names what to bind.
#pragma once

#include <cuda_runtime_api.h>

#include <utility>

#include "absl/status/status.h"
#include "worker/engine/backend/cuda/dnn/bindings.h"
#include "worker/engine/backend/cuda/dnn/engines.h"
#include "worker/engine/backend/cuda/dnn/graph.h"
#include "worker/engine/backend/cuda/dnn/plan.h"

namespace trainyard::engine::cuda::dnn {

// Enqueues a plan with everything bound that its graph names. Returns FAILED_PRECONDITION without a
// device.
absl::Status Execute(const BuiltPlan& plan, const Graph& graph, const Bindings& bindings,
                     void* workspace, cudaStream_t stream);

// The facts of a plan that was not built. Run returns FAILED_PRECONDITION.
class EstimatedPlan : public Plan {
 public:
  explicit EstimatedPlan(PlanFacts facts) : facts_(std::move(facts)) {}

  const PlanFacts& facts() const override { return facts_; }
  absl::Status Run(const ConvMemory&, void*, cudaStream_t) const override { return NotBuilt(); }
  absl::Status Run(const AttentionMemory&, void*, cudaStream_t) const override {
    return NotBuilt();
  }

 private:
  static absl::Status NotBuilt() {
    return absl::FailedPreconditionError("this plan was estimated, and not built");
  }

  PlanFacts facts_;
};

class CudnnPlan : public Plan {
 public:
  // `graph` names what to bind.
  CudnnPlan(Graph graph, BuiltPlan plan, PlanFacts facts)
      : graph_(std::move(graph)), plan_(std::move(plan)), facts_(std::move(facts)) {}

  const PlanFacts& facts() const override { return facts_; }
  absl::Status Run(const ConvMemory& memory, void* workspace, cudaStream_t stream) const override;
  absl::Status Run(const AttentionMemory& memory, void* workspace,
                   cudaStream_t stream) const override;

 private:
  Graph graph_;
  BuiltPlan plan_;
  PlanFacts facts_;
};

}  // namespace trainyard::engine::cuda::dnn
