// Compares products over the emulated cuBLASLt with loops in f64.
#include "worker/engine/backend/cuda/blas/matmul.h"

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "common/base/check.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/cuda_on_cpu/cublaslt/cublaslt_on_cpu.h"
#include "tests/testing/cuda_on_cpu/cuda_on_cpu.h"
#include "tests/unit/worker/engine/backend/cuda/matmul_testing.h"

namespace trainyard::engine::cuda::blas {
namespace {

using testing::CheckCuda;
using testing::DeviceMatrix;
using testing::ExpectRight;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MakePlanner;
using testing::MatmulTest;
using testing::Problem;
using ::testing::SizeIs;

TEST_P(MatmulTest, EveryTransposeEpilogueAndSumIsThatOfTheLoops) {
  const auto planner = MakePlanner();
  for (int choice = 0; choice < 32; ++choice) {
    MatmulProblem problem = WithShape(24, 16, 40);
    problem.a_transposed = (choice & 1) != 0;
    problem.b_transposed = (choice & 2) != 0;
    problem.adds = (choice & 4) != 0;
    problem.bias = (choice & 8) != 0;
    if ((choice & 16) != 0) problem.activation = Activation::kRelu;
    problem.a_stride = problem.a_transposed ? 24 : 40;
    problem.b_stride = problem.b_transposed ? 40 : 16;
    ExpectRight(*planner, problem);
  }
}

TEST_P(MatmulTest, RowsMayBeOddAndApart) {
  const auto planner = MakePlanner();
  for (const int64_t extra : {0, 1, 3, 8}) {
    for (const bool transposed : {false, true}) {
      MatmulProblem problem = WithShape(5, 7, 9);
      problem.a_transposed = transposed;
      problem.b_transposed = !transposed;
      problem.a_stride = (transposed ? 5 : 9) + extra;
      problem.b_stride = (transposed ? 7 : 9) + extra;
      problem.d_stride = 7 + extra;
      problem.bias = true;
      problem.activation = Activation::kRelu;
      ExpectRight(*planner, problem);
    }
  }
}

TEST_P(MatmulTest, OneElementAndLongSums) {
  const auto planner = MakePlanner();
  ExpectRight(*planner, WithShape(1, 1, 1));
  ExpectRight(*planner, WithShape(1, 10, 300));
  ExpectRight(*planner, WithShape(300, 1, 3));
  ExpectRight(*planner, WithShape(8, 8, 4001));
}

TEST_P(MatmulTest, NoWorkspaceIsEnough) {
  const auto planner = MakePlanner({.workspace_bytes_max = 0, .autotunes = false});
  const MatmulProblem problem = WithShape(16, 24, 64);
  const auto matmul = planner->Find(problem, Effort::kMeasure);
  ASSERT_TRUE(matmul.ok()) << matmul.status();
  EXPECT_EQ((*matmul)->workspace_bytes(), 0);
  ExpectRight(*planner, problem);
}

INSTANTIATE_TEST_SUITE_P(AllTypes, MatmulTest, testing::AllTypes(), testing::NameOfTypes);

// [1, 1] = sum over k of a * 1.
float SumOf(const MatmulProblem& problem, float element) {
  const auto planner = MakePlanner({.autotunes = false});
  const auto matmul = planner->Find(problem, Effort::kMeasure);
  TY_CHECK_OK(matmul.status());
  DeviceMatrix a(problem.input, 1, problem.k, problem.k);
  DeviceMatrix b(problem.input, problem.k, 1, 1);
  DeviceMatrix d(problem.output, 1, 1, 1);
  DeviceMatrix workspace(Type::kF32, 1, 1, (*matmul)->workspace_bytes() / 4 + 1);
  a.Fill([&](int64_t, int64_t) { return element; });
  b.Fill([](int64_t, int64_t) { return 1.0F; });
  TY_CHECK_OK((*matmul)->Run(
      {.a = a.data(), .b = b.data(), .d = d.data(), .workspace = workspace.data()}, nullptr));
  return d.Read()[0];
}

TEST(Matmul, OnlyTf32RoundsItsInputs) {
  MatmulProblem problem = Problem(1, 1, 8, Type::kF32, Type::kF32);
  const float element = 1 + std::ldexp(1.0F, -12);
  EXPECT_EQ(SumOf(problem, element), 8 * element);
  problem.tf32 = true;
  EXPECT_EQ(SumOf(problem, element), 8);
}

TEST(Matmul, PartsOfASumAreNotRoundedToTheOutput) {
  // 771 rounds to 772 in bf16; three parts of 257 would round to 256 each.
  EXPECT_EQ(SumOf(Problem(1, 1, 771, Type::kBf16, Type::kBf16), 1), 772);
}

TEST(Matmul, TheSameProblemGivesTheSameProduct) {
  const auto planner = MakePlanner();
  const MatmulProblem problem = Problem(8, 8, 8, Type::kBf16, Type::kBf16);
  const auto first = planner->Find(problem, Effort::kMeasure);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(*first, planner->Find(problem, Effort::kMeasure).value());
  MatmulProblem other = problem;
  other.a_stride = 16;
  EXPECT_NE(*first, planner->Find(other, Effort::kMeasure).value());
}

TEST(Matmul, TakesOverWhatAnotherRankMeasured) {
  const MatmulProblem problem = Problem(64, 48, 32, Type::kBf16, Type::kBf16);
  const auto leader = *MatmulPlanner::Create({});
  ASSERT_TRUE(leader->Find(problem, Effort::kMeasure).ok());
  const std::map<std::string, int> choices = leader->MeasuredChoices();
  ASSERT_EQ(choices.size(), 1U);
  const auto& [key, place] = *choices.begin();
  // A measurement would come to what the leader has found, not to this.
  const std::map<std::string, int> taken = {{key, place == 0 ? 1 : 0}};
  const auto follower = *MatmulPlanner::Create({});
  follower->TakeChoices(taken);
  ASSERT_TRUE(follower->Find(problem, Effort::kMeasure).ok());
  EXPECT_EQ(follower->MeasuredChoices(), taken);
  // A place that the candidates do not have is measured anew.
  const auto other = *MatmulPlanner::Create({});
  other->TakeChoices({{key, 99}});
  ASSERT_TRUE(other->Find(problem, Effort::kMeasure).ok());
  EXPECT_NE(other->MeasuredChoices().at(key), 99);
}

TEST(Matmul, RefusesAProposalThatComputesSomethingElse) {
  for (const Type type : {Type::kF32, Type::kBf16}) {
    // The sums of four parts are wrong.
    for (const int wrong : {0, 4}) {
      cuda_on_cpu::SpoilSplits(wrong);
      const absl::Cleanup mend = [] { cuda_on_cpu::SpoilSplits(0); };
      std::vector<PlanRecord> records;
      const auto planner = MakePlanner({.scrutiny = {.verifies = true, .records = &records}});
      const MatmulProblem problem = Problem(48, 40, 96, type, type);
      ASSERT_TRUE(planner->Find(problem, Effort::kMeasure).ok());
      ASSERT_EQ(records.size(), 1U);
      EXPECT_EQ(records.front().problem, problem.Key());
      EXPECT_TRUE(records.front().is_verified);
      EXPECT_EQ(records.front().candidates, 3);
      if (wrong == 0) {
        EXPECT_THAT(records.front().refused, IsEmpty());
        continue;
      }
      ASSERT_THAT(records.front().refused, SizeIs(1));
      EXPECT_THAT(records.front().refused.front(), HasSubstr("proposal 2 differs from"));
      EXPECT_NE(records.front().engine, "proposal 2");
    }
  }
}

TEST(Matmul, MeasuringGivesItsMemoryBack) {
  const int64_t before = cuda_on_cpu::LiveBytes();
  const auto planner = MakePlanner();
  ASSERT_TRUE(planner->Find(Problem(64, 64, 64, Type::kBf16, Type::kBf16), Effort::kMeasure).ok());
  EXPECT_EQ(cuda_on_cpu::LiveBytes(), before);
}

TEST(Matmul, WithoutMemoryToMeasureTheFirstCandidateIsTaken) {
  cuda_on_cpu::SetDeviceBytes(4096);
  const auto planner = MakePlanner();
  const auto matmul =
      planner->Find(Problem(64, 64, 64, Type::kBf16, Type::kBf16), Effort::kMeasure);
  cuda_on_cpu::SetDeviceBytes(int64_t{8} << 30);
  EXPECT_TRUE(planner->MeasuredChoices().empty()) << "nothing was measured";
  EXPECT_TRUE(matmul.ok()) << matmul.status();
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST(Matmul, ACapturedProductRunsAtEveryLaunch) {
  const auto planner = MakePlanner();
  MatmulProblem problem = Problem(1, 1, 4, Type::kF32, Type::kF32);
  problem.adds = true;
  const auto matmul = planner->Find(problem, Effort::kMeasure);
  ASSERT_TRUE(matmul.ok()) << matmul.status();
  DeviceMatrix a(Type::kF32, 1, 4, 4), b(Type::kF32, 4, 1, 1), d(Type::kF32, 1, 1, 1);
  DeviceMatrix workspace(Type::kF32, 1, 1, (*matmul)->workspace_bytes() / 4 + 1);
  a.Fill([](int64_t, int64_t) { return 1.0F; });
  b.Fill([](int64_t, int64_t) { return 2.0F; });
  d.Fill([](int64_t, int64_t) { return 0.5F; });
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  CheckCuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CheckCuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  ASSERT_TRUE(
      (*matmul)
          ->Run({.a = a.data(), .b = b.data(), .d = d.data(), .workspace = workspace.data()},
                stream)
          .ok());
  CheckCuda(cudaStreamEndCapture(stream, &graph));
  EXPECT_EQ(d.Read()[0], 0.5F);
  CheckCuda(cudaGraphInstantiate(&executable, graph, 0));
  for (int i = 0; i < 3; ++i) CheckCuda(cudaGraphLaunch(executable, stream));
  CheckCuda(cudaStreamSynchronize(stream));
  EXPECT_EQ(d.Read()[0], 24.5F);
  CheckCuda(cudaGraphExecDestroy(executable));
  CheckCuda(cudaGraphDestroy(graph));
  CheckCuda(cudaStreamDestroy(stream));
}

TEST(Matmul, WhatIsNoProblemIsRefusedByName) {
  const auto planner = MakePlanner();
  MatmulProblem problem = Problem(4, 4, 4, Type::kF32, Type::kBf16);
  EXPECT_THAT(std::string(planner->Find(problem, Effort::kMeasure).status().message()),
              HasSubstr("f32 inputs cannot give bf16"));
  problem = Problem(0, 4, 4, Type::kF32, Type::kF32);
  EXPECT_TRUE(absl::IsInvalidArgument(planner->Find(problem, Effort::kMeasure).status()));
  problem = Problem(4, 4, 4, Type::kF32, Type::kF32);
  problem.b_stride = 3;
  EXPECT_THAT(std::string(planner->Find(problem, Effort::kMeasure).status().message()),
              HasSubstr("m4 n4 k4 a4 b3 d4: a stride is shorter"));
  const auto refusal = [&](const auto& change) {
    MatmulProblem wrong = Problem(4, 4, 4, Type::kF32, Type::kF32);
    change(wrong);
    return std::string(planner->Find(wrong, Effort::kMeasure).status().message());
  };
  EXPECT_THAT(refusal([](MatmulProblem& p) { p.addend_stride = 3; }), HasSubstr("c3: a stride"));
  EXPECT_THAT(refusal([](MatmulProblem& p) {
                p.addend_stride = 4;
                p.adds = true;
              }),
              HasSubstr("adds c4: d and another addend"));
  EXPECT_THAT(refusal([](MatmulProblem& p) { p.aux_stride = 8; }),
              HasSubstr("aux8: only GELU and its gradient"));
  EXPECT_THAT(refusal([](MatmulProblem& p) { p.activation = Activation::kGeluGradient; }),
              HasSubstr("dgelu: the gradient of GELU has an aux"));
  EXPECT_THAT(refusal([](MatmulProblem& p) { p.summed = Summed::kA; }),
              HasSubstr("sumA: the input that is summed must lie with k rows"));
  EXPECT_THAT(refusal([](MatmulProblem& p) {
                p.summed = Summed::kB;
                p.bias = true;
              }),
              HasSubstr("bias sumB: sums of an input"));
}

TEST(Matmul, PointersThatAreMissingNotWantedOrNotAlignedAreRefusedByName) {
  const auto planner = MakePlanner();
  MatmulProblem problem = Problem(8, 8, 8, Type::kF32, Type::kF32);
  problem.bias = true;
  problem.activation = Activation::kGelu;
  problem.aux_stride = problem.addend_stride = 8;
  const auto matmul = planner->Find(problem, Effort::kMeasure);
  ASSERT_TRUE(matmul.ok()) << matmul.status();
  DeviceMatrix memory(Type::kF32, 1, 1, 1024);
  DeviceMatrix workspace(Type::kF32, 1, 1, (*matmul)->workspace_bytes() / 4 + 1);
  float* const at = static_cast<float*>(memory.data());
  const MatmulMemory right = {.a = at,
                              .b = at + 64,
                              .addend = at + 128,
                              .bias = at + 192,
                              .aux = at + 256,
                              .d = at + 320,
                              .workspace = workspace.data()};
  const absl::Status done = (*matmul)->Run(right, nullptr);
  EXPECT_TRUE(done.ok()) << done;
  const auto refusal = [&](const auto& change) {
    MatmulMemory wrong = right;
    change(wrong);
    const absl::Status status = (*matmul)->Run(wrong, nullptr);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(refusal([&](MatmulMemory& m) { m.a = at + 1; }), HasSubstr("a is not aligned to 16"));
  EXPECT_THAT(refusal([](MatmulMemory& m) { m.bias = nullptr; }), HasSubstr("bias is missing"));
  EXPECT_THAT(refusal([](MatmulMemory& m) { m.aux = nullptr; }), HasSubstr("aux is missing"));
  EXPECT_THAT(refusal([](MatmulMemory& m) { m.addend = nullptr; }), HasSubstr("addend is missing"));
  EXPECT_THAT(refusal([&](MatmulMemory& m) { m.sums = at; }), HasSubstr("sums is not wanted"));
  EXPECT_THAT(refusal([&](MatmulMemory& m) { m.workspace = at + 4; }),
              HasSubstr("workspace is not aligned to 256"));
  CheckCuda(cudaDeviceSynchronize());
}

TEST(Matmul, WithoutAGpuThereIsNoPlanner) {
  cuda_on_cpu::SetDeviceCount(cuda_on_cpu::kNoDriver);
  const auto planner = MatmulPlanner::Create({});
  cuda_on_cpu::SetDeviceCount(1);
  EXPECT_TRUE(absl::IsUnavailable(planner.status())) << planner.status();
}

}  // namespace
}  // namespace trainyard::engine::cuda::blas
