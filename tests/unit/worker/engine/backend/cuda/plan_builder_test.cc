// Tests how plans outlive the handles with which threads have built them, over the emulated cuDNN,
// which runs a plan only by the handle for which it was made.
#include "worker/engine/backend/cuda/dnn/plan_builder.h"

#include <gtest/gtest.h>

#include <barrier>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "tests/testing/cuda_on_cpu/cudnn/cudnn_on_cpu.h"
#include "tests/unit/worker/engine/backend/cuda/dnn_testing.h"
#include "worker/engine/backend/cuda/dnn/conv_graph.h"
#include "worker/engine/backend/cuda/dnn/cudnn_plan.h"

namespace trainyard::engine::cuda::dnn {
namespace {

constexpr int kThreads = 3;

class PlanBuilderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    absl::StatusOr<std::unique_ptr<OpenTarget>> target = OpenTarget::ForDevice();
    ASSERT_TRUE(target.ok()) << target.status();
    builder_.emplace(*std::move(target), kThreads);
    absl::StatusOr<Graph> graph = BuildConvGraph(SmallConv(), builder_->target().handle);
    ASSERT_TRUE(graph.ok()) << graph.status();
    graph_ = *std::move(graph);
  }
  void TearDown() override { cuda_on_cpu::RefusePlanTexts(false); }

  // Makes each thread build a plan, and returns one of a thread that is not the first.
  BuiltPlan BuildByHelper() {
    const auto engines = AskHeuristics(builder_->target(), graph_, CUDNN_HEUR_MODE_A);
    EXPECT_TRUE(engines.ok()) << engines.status();
    std::vector<const EngineConfig*> three;
    for (const EngineConfig& engine : *engines) {
      // No plan can be made of the first, and another takes a large workspace.
      if (engine.workspace_bytes < 2 << 20 && three.size() < kThreads) three.push_back(&engine);
    }
    std::barrier together(kThreads);
    cuda_on_cpu::WatchPlans([&together] { together.arrive_and_wait(); });
    std::vector<absl::StatusOr<BuiltPlan>> plans = builder_->Build(three);
    cuda_on_cpu::WatchPlans({});
    for (absl::StatusOr<BuiltPlan>& plan : plans) {
      if (plan.ok() && plan->target != &builder_->target()) return *std::move(plan);
    }
    ADD_FAILURE() << "all plans were built by one thread";
    return {};
  }

  absl::Status Run(const BuiltPlan& plan, cudaStream_t stream = nullptr) const {
    std::vector<std::unique_ptr<Memory>> memory;
    Bindings bindings;
    for (const Slot& slot : graph_.slots) {
      memory.push_back(std::make_unique<Memory>(static_cast<size_t>(slot.bytes)));
      bindings.emplace_back(slot.id, memory.back()->get());
    }
    const Memory workspace(static_cast<size_t>(graph_.WorkspaceBytes(plan.workspace_bytes)) + 1);
    absl::Status ran = Execute(plan, graph_, bindings, workspace.get(), stream);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    return ran;
  }

  const int64_t handles_before_ = cuda_on_cpu::LiveCudnnHandles();
  std::optional<PlanBuilder> builder_;
  Graph graph_;
};

TEST_F(PlanBuilderTest, AnAdoptedPlanRunsWhenTheThreadsHandlesAreClosed) {
  const BuiltPlan plan = builder_->Adopt(BuildByHelper());
  EXPECT_EQ(plan.target, &builder_->target());
  EXPECT_EQ(cuda_on_cpu::LiveCudnnHandles(), handles_before_ + kThreads);
  builder_->CloseHelpers();
  EXPECT_EQ(cuda_on_cpu::LiveCudnnHandles(), handles_before_ + 1);
  EXPECT_TRUE(Run(plan).ok()) << Run(plan);
}

TEST_F(PlanBuilderTest, APlanWithoutATextKeepsItsHandle) {
  cuda_on_cpu::RefusePlanTexts(true);
  const BuiltPlan plan = builder_->Adopt(BuildByHelper());
  builder_->CloseHelpers();
  EXPECT_EQ(cuda_on_cpu::LiveCudnnHandles(), handles_before_ + 2);
  EXPECT_TRUE(Run(plan).ok()) << Run(plan);
  // The builder goes on with as many threads as before.
  EXPECT_NE(BuildByHelper().target, &builder_->target());
}

TEST_F(PlanBuilderTest, APlanWithAHandleOfItsOwnLetsItsStreamGo) {
  cuda_on_cpu::RefusePlanTexts(true);
  const BuiltPlan plan = builder_->Adopt(BuildByHelper());
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  EXPECT_TRUE(Run(plan, stream).ok());
  builder_->ReleaseStreams();
  cudaStream_t left = stream;
  EXPECT_EQ(cudnnGetStream(plan.target->handle, &left), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(left, nullptr);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

}  // namespace
}  // namespace trainyard::engine::cuda::dnn
