// Tests that gradients of parameters run beside what follows them, as branches of a step's graph,
// and that neither the bits nor the memory of a step depend on the order of the branches.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/testing/cuda_on_cpu/cuda_on_cpu.h"
#include "tests/unit/worker/engine/engine_testing.h"
#include "worker/engine/backend/cuda/branch.h"
#include "worker/engine/backend/cuda/cuda_backend.h"
#include "worker/engine/backend/cuda/cuda_executable.h"
#include "worker/engine/backend/cuda/program.h"
#include "worker/engine/backend/cuda/side_stream.h"
#include "worker/engine/graph/graph_builder.h"
#include "worker/engine/models/models.h"

namespace trainyard::engine {
namespace {

using cuda::Branch;
using cuda::Call;
using cuda::Program;
using testing::TestBatch;

TEST(Branch, EndsBeforeACallThatWouldDisturbIt) {
  Branch branch;
  EXPECT_FALSE(branch.EndsBefore(/*is_side=*/true, {{1}, {1}}));
  branch.Add(/*is_side=*/true, {{1, kNoBuffer}, {2}});
  EXPECT_FALSE(branch.EndsBefore(/*is_side=*/false, {{1, kNoBuffer}, {3, kNoBuffer}}));
  EXPECT_TRUE(branch.EndsBefore(/*is_side=*/false, {{3}, {1}}));
  EXPECT_TRUE(branch.EndsBefore(/*is_side=*/false, {{2}, {3}}));
  EXPECT_TRUE(branch.EndsBefore(/*is_side=*/false, {{3}, {2}}));
}

TEST(Branch, EndsBeforeAnotherOneBegins) {
  Branch branch;
  branch.Add(/*is_side=*/true, {{1}, {2}});
  EXPECT_FALSE(branch.EndsBefore(/*is_side=*/true, {{1}, {2}})) << "it goes on";
  branch.Add(/*is_side=*/false, {{1}, {3}});
  EXPECT_TRUE(branch.EndsBefore(/*is_side=*/true, {{4}, {5}}));
}

// A program of calls that do nothing, for its arena.
struct Planned {
  Program program;
  std::vector<BufferId> buffers;  // of 1 KiB

  explicit Planned(int count) {
    for (int i = 0; i < count; ++i) buffers.push_back(program.AddArenaBuffer(1024));
  }
  void Emit(bool is_side, const std::vector<int>& reads, const std::vector<int>& writes) {
    const auto of = [this](const std::vector<int>& numbers) {
      std::vector<BufferId> ids;
      for (const int number : numbers) ids.push_back(buffers[static_cast<size_t>(number)]);
      return ids;
    };
    Call call;
    call.is_side = is_side;
    program.Emit(std::move(call), {of(reads), of(writes)});
  }
};

// 0 is dy, 1 is x, 2 the workspace of the branch, 3 dx, 4 to 6 what is computed from it.
TEST(BranchMemory, IsNotGivenToCallsBesideIt) {
  for (const bool is_side : {false, true}) {
    Planned planned(7);
    planned.Emit(false, {}, {0, 1});
    planned.Emit(is_side, {0, 1}, {2});
    planned.Emit(false, {0}, {3});
    planned.Emit(false, {3}, {4});
    planned.Emit(false, {4}, {5});
    planned.Emit(is_side, {5}, {6});
    planned.program.Plan(/*is_guarded=*/false, nullptr);
    // Beside the branch there are x, dy and the workspace, and two of the others.
    EXPECT_EQ(planned.program.arena_bytes(), is_side ? 5 * 1024 : 3 * 1024);
    EXPECT_EQ(planned.program.calls()[5].ends_branch, is_side);
    EXPECT_FALSE(planned.program.calls()[5].is_side) << "nothing runs beside the last call";
  }
}

// Runs a branch and a call beside it, which ends with `status`, on a device. Each call notes its
// stream and tickets, and does `work`.
class BranchRun : public ::testing::Test {
 protected:
  void TearDown() override { cuda_on_cpu::SetSeed(1); }

  struct Seen {
    cudaStream_t stream;
    uint32_t* tickets;
    friend bool operator==(const Seen&, const Seen&) = default;
  };

  absl::Status Run(const cuda::SideStream* side, const std::function<void()>& work,
                   const absl::Status& status = absl::OkStatus()) {
    Program program;
    const auto emit = [&](bool is_side, const absl::Status& ends) {
      Call call;
      call.name = "call";
      call.is_side = is_side;
      call.enqueue = [this, &work, ends](const cuda::Enqueue& how) {
        seen_.push_back({how.stream, how.tickets});
        EXPECT_EQ(cuda_on_cpu::Enqueue(how.stream, work), cudaSuccess);
        return ends;
      };
      program.Emit(std::move(call), cuda::Accesses());
    };
    emit(true, absl::OkStatus());
    emit(false, status);
    emit(true, absl::OkStatus());
    emit(false, absl::OkStatus());
    program.Plan(/*is_guarded=*/false, nullptr);
    seen_.clear();
    return program.Run(0, program.calls().size(),
                       {.stream = stream_.get(), .tickets = &tickets_, .side = side});
  }

  const cuda::Stream stream_ = *cuda::CreateStream();
  const cuda::SideStream side_ = *cuda::SideStream::Create(Backing::kMemory);
  uint32_t tickets_ = 0;
  std::vector<Seen> seen_;
};

// Launches that may run at the same time would otherwise take each other's tickets.
TEST_F(BranchRun, HasTicketsOfItsOwn) {
  const Seen main = {stream_.get(), &tickets_};
  const Seen side = {side_.stream(), side_.tickets()};
  ASSERT_TRUE(Run(&side_, [] {}).ok());
  EXPECT_EQ(seen_, (std::vector<Seen>{side, main, side, main}));
  ASSERT_TRUE(Run(nullptr, [] {}).ok());
  EXPECT_EQ(seen_, std::vector<Seen>(4, main));
}

TEST_F(BranchRun, IsWaitedForAfterAnErrorToo) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    cuda_on_cpu::SetSeed(seed);
    int runs = 0;
    EXPECT_TRUE(absl::IsInternal(Run(
        &side_, [&runs] { ++runs; }, absl::InternalError("lost"))));
    EXPECT_EQ(seen_.size(), 2U);
    ASSERT_EQ(cudaStreamSynchronize(stream_.get()), cudaSuccess);
    EXPECT_EQ(runs, 2) << "seed " << seed;
    ASSERT_EQ(cudaStreamSynchronize(side_.stream()), cudaSuccess);
  }
}

TEST_F(BranchRun, ThatFailsInACaptureLeavesTheStreamsFree) {
  const auto captured = cuda::Capture(stream_.get(), [this] {
    return Run(
        &side_, [] {}, absl::InternalError("lost"));
  });
  EXPECT_EQ(captured.status().message(), "call: lost");
  int runs = 0;
  ASSERT_TRUE(Run(&side_, [&runs] { ++runs; }).ok());
  ASSERT_EQ(cudaStreamSynchronize(stream_.get()), cudaSuccess);
  EXPECT_EQ(runs, 4);
}

struct Model {
  std::string name;
  Graph graph;
};

// An embedding right before the head, which shares its weight: both add to the same gradient, one
// call on each stream.
Graph TiedEmbedding() {
  GraphBuilder b = GraphBuilder::ForTokens(6, 24);
  b.SoftmaxCrossEntropy(b.TiedLinear("head", b.Embedding("token", b.input(), 16), "token"));
  return *std::move(b).Build();
}

std::vector<Model> Models() {
  std::vector<Model> models;
  models.push_back({"tied embedding", TiedEmbedding()});
  models.push_back({"convnet", *BuildConvnet({.input = {3, 8, 8}, .channels = {8, 16}})});
  models.push_back({"residuals", testing::Residuals(8)});
  models.push_back({"inceptions", testing::Inceptions({16, 8, 8, 16})});
  models.push_back(
      {"gpt2", *BuildGpt2({.layers = 2, .heads = 2, .width = 16, .context = 8, .vocabulary = 32})});
  return models;
}

constexpr OptimizerSpec kMomentum = {.momentum = 0.9, .weight_decay = 1e-3};
constexpr int64_t kRows = 4;

struct Course {
  std::vector<double> losses;
  testing::NamedValues state;

  friend bool operator==(const Course&, const Course&) = default;
};

// Takes whole steps, and one whose gradients are summed over two batches and told in parts.
Course Train(const Graph& model, const CompileOptions& options) {
  const auto backend = *MakeCudaBackend({.autotunes = false});
  const auto executable = *backend->Compile(model, kMomentum, options);
  testing::RandomizeState(1, *executable);
  Course course;
  for (uint64_t step = 0; step < 4; ++step) {
    EXPECT_TRUE(executable->StartStep(testing::RandomBatch(step, model, kRows).batch(), 0.01).ok());
    course.losses.push_back(executable->FinishUpdate()->loss);
  }
  const auto size = static_cast<int64_t>(executable->reduction().size());
  executable->set_ready_ends({size / 2, size});
  const auto on_ready = [](int64_t, int64_t) {};
  for (uint64_t step = 4; step < 7; ++step) {
    const TestBatch batch = testing::RandomBatch(step, model, kRows);
    EXPECT_TRUE(executable->Accumulate(batch.batch(), 0.5, nullptr).ok());
    EXPECT_TRUE(executable->Accumulate(batch.batch(), 0.5, on_ready).ok());
    course.losses.push_back(executable->Update(0.01)->loss);
  }
  course.state = testing::ReadAllState(*executable);
  return course;
}

class Branches : public ::testing::TestWithParam<Precision> {
 protected:
  void TearDown() override { cuda_on_cpu::SetSeed(1); }
};

TEST_P(Branches, LeaveTheBitsAsTheyAreInAnyOrder) {
  for (const Model& model : Models()) {
    CompileOptions options = {.max_rows = kRows, .precision = GetParam(), .branches = false};
    const Course chain = Train(model.graph, options);
    options.branches = true;
    for (uint64_t seed = 1; seed <= 2; ++seed) {
      cuda_on_cpu::SetSeed(seed);
      EXPECT_EQ(Train(model.graph, options), chain) << model.name << ", seed " << seed;
    }
    options.captures = false;
    EXPECT_EQ(Train(model.graph, options), chain) << model.name << ", call by call";
  }
}

INSTANTIATE_TEST_SUITE_P(Precisions, Branches, ::testing::Values(Precision::kF32, Precision::kBf16),
                         [](const ::testing::TestParamInfo<Precision>& test) {
                           return std::string(PrecisionName(test.param));
                         });

// Returns the shape of the graph of a whole step.
cuda_on_cpu::GraphShape ShapeOfStep(const Graph& model, const CompileOptions& options) {
  const auto backend = *MakeCudaBackend({.autotunes = false});
  const auto executable = *backend->Compile(model, kMomentum, options);
  const TestBatch batch = testing::RandomBatch(1, model, kRows);
  for (int step = 0; step < 3; ++step) {
    EXPECT_TRUE(executable->StartStep(batch.batch(), 0.01).ok());
    EXPECT_TRUE(executable->FinishUpdate().ok());
  }
  const auto& captured = dynamic_cast<cuda::CudaExecutable&>(*executable);
  EXPECT_EQ(cuda_on_cpu::LastGraphShape().nodes, captured.StepNodes(kRows));
  return cuda_on_cpu::LastGraphShape();
}

// Each of the three layers with an input gradient has a branch. The first one forks at one node,
// and the last one is joined by one. In between both nodes before come before both nodes after.
TEST(BranchesOfTheGraph, AreAsManyAsLayersWithAnInputGradient) {
  const Graph model = *BuildMlp({.input = {16}, .hidden = {16, 16, 16}, .classes = 8});
  const auto shape = ShapeOfStep(model, {.max_rows = kRows});
  EXPECT_EQ(shape.forks, 1 + 2 * 2);
  EXPECT_EQ(shape.joins, 2 * 2 + 1);
  const auto chain = ShapeOfStep(model, {.max_rows = kRows, .branches = false});
  EXPECT_EQ(chain.nodes, shape.nodes);
  EXPECT_EQ(chain.forks, 0);
  EXPECT_EQ(chain.joins, 0);
}

// The buffers of a branch live longer, and a plan says so without a device's memory.
TEST(BranchesInThePlan, AreAccountedFor) {
  const Graph model = *BuildConvnet({.input = {3, 16, 16}, .channels = {16, 16}, .classes = 10});
  const auto backend = *MakeCudaBackend({.autotunes = false});
  int64_t bytes[2] = {0, 0};
  for (const bool branches : {false, true}) {
    const CompileOptions options = {.max_rows = 16, .branches = branches};
    const absl::StatusOr<CompilePlan> plan = backend->Plan(model, kMomentum, options);
    ASSERT_TRUE(plan.ok()) << plan.status();
    const int64_t before = LiveBufferBytes();
    const auto executable = backend->Compile(model, kMomentum, options);
    ASSERT_TRUE(executable.ok()) << executable.status();
    EXPECT_EQ(LiveBufferBytes() - before, plan->memory.buffers());
    bytes[branches ? 1 : 0] = plan->memory.buffers();
  }
  EXPECT_GT(bytes[1], bytes[0]);
}

}  // namespace
}  // namespace trainyard::engine
