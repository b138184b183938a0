// Tests what products do besides multiplying, with cuBLASLt's epilogues and with kernels of our
// own.
#include <map>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/cuda_on_cpu/cublaslt/cublaslt_on_cpu.h"
#include "tests/unit/worker/engine/backend/cuda/matmul_testing.h"
#include "worker/engine/backend/cuda/blas/matmul.h"

namespace trainyard::engine::cuda::blas {
namespace {

using testing::CheckCuda;
using testing::DeviceMatrix;
using testing::ExpectRight;
using ::testing::IsEmpty;
using testing::MakePlanner;
using testing::MatmulTest;
using testing::Problem;

using EpilogueTest = MatmulTest;

TEST_P(EpilogueTest, AKernelOfOursDoesAnEpilogueThatIsRefused) {
  cuda_on_cpu::RefuseEpilogues(true);
  const absl::Cleanup offer = [] { cuda_on_cpu::RefuseEpilogues(false); };
  const auto planner = MakePlanner();
  for (int choice = 0; choice < 4; ++choice) {
    MatmulProblem problem = WithShape(24, 16, 40);
    problem.bias = (choice & 1) != 0;
    if ((choice & 2) != 0) problem.activation = Activation::kRelu;
    const auto matmul = planner->Find(problem, Effort::kMeasure);
    ASSERT_TRUE(matmul.ok()) << matmul.status();
    EXPECT_EQ((*matmul)->own_epilogue().kernels, choice != 0 ? 1 : 0);
    ExpectRight(*planner, problem);
  }
}

// [m, 24] times [24, n] with GELU or its gradient, in each combination of what goes with it.
std::vector<MatmulProblem> GeluProblems(const MatmulProblem& plain) {
  std::vector<MatmulProblem> problems;
  for (int choice = 0; choice < 16; ++choice) {
    MatmulProblem problem = plain;
    const bool is_gradient = (choice & 1) != 0;
    problem.activation = is_gradient ? Activation::kGeluGradient : Activation::kGelu;
    problem.bias = !is_gradient && (choice & 2) != 0;
    if (is_gradient || (choice & 4) != 0) problem.aux_stride = problem.n + 8;
    if ((choice & 8) != 0) problem.addend_stride = problem.n;
    problems.push_back(problem);
  }
  return problems;
}

TEST_P(EpilogueTest, GeluAndItsGradientAreThoseByTanh) {
  // Products of two factors are about as small as the bends of GELU.
  for (const int64_t k : {2, 24}) {
    for (const MatmulProblem& problem : GeluProblems(WithShape(12, 16, k))) {
      const auto planner = MakePlanner({.autotunes = false});
      const auto matmul = planner->Find(problem, Effort::kMeasure);
      ASSERT_TRUE(matmul.ok()) << matmul.status();
      EXPECT_EQ((*matmul)->own_epilogue().kernels, 0) << problem.Key();
      ExpectRight(*planner, problem);
    }
  }
}

TEST_P(EpilogueTest, KernelsOfOursDoWhatIsRefusedOfGelu) {
  const absl::Cleanup offer = [] {
    cuda_on_cpu::RefuseGelu(false);
    cuda_on_cpu::RefuseEpilogues(false);
  };
  for (const bool refuses_biases : {false, true}) {
    cuda_on_cpu::RefuseGelu(true);
    cuda_on_cpu::RefuseEpilogues(refuses_biases);
    for (const MatmulProblem& problem : GeluProblems(WithShape(12, 16, 24))) {
      const auto planner = MakePlanner();
      const auto matmul = planner->Find(problem, Effort::kMeasure);
      ASSERT_TRUE(matmul.ok()) << matmul.status();
      EXPECT_EQ((*matmul)->own_epilogue().kernels, problem.bias && refuses_biases ? 2 : 1)
          << problem.Key();
      ExpectRight(*planner, problem);
    }
  }
}

TEST_P(EpilogueTest, AnAuxWhoseRowsAreNoMultipleOfEightIsNoneOfCublas) {
  MatmulProblem problem = WithShape(12, 12, 24);
  problem.bias = true;
  problem.activation = Activation::kGelu;
  for (const int64_t stride : {12, 16}) {
    problem.aux_stride = stride;
    const auto planner = MakePlanner({.autotunes = false});
    const auto matmul = planner->Find(problem, Effort::kMeasure);
    ASSERT_TRUE(matmul.ok()) << matmul.status();
    EXPECT_EQ((*matmul)->own_epilogue().kernels, stride == 12 ? 1 : 0);
    ExpectRight(*planner, problem);
  }
}

TEST_P(EpilogueTest, AnAddendIsAddedInPlaceOrFromAfar) {
  const auto planner = MakePlanner();
  for (const int64_t extra : {0, 3}) {
    for (const bool bias : {false, true}) {
      MatmulProblem problem = WithShape(24, 16, 40);
      problem.addend_stride = 16 + extra;
      problem.bias = bias;
      ExpectRight(*planner, problem);
    }
  }
}

TEST_P(EpilogueTest, SumsOfAnInputAreThoseOfTheLoops) {
  if (std::get<1>(GetParam()) != Type::kF32) GTEST_SKIP() << "sums are f32, as d is";
  const absl::Cleanup offer = [] { cuda_on_cpu::RefuseEpilogues(false); };
  for (const bool refuses : {false, true}) {
    cuda_on_cpu::RefuseEpilogues(refuses);
    for (const bool adds : {false, true}) {
      for (const Summed summed : {Summed::kA, Summed::kB}) {
        MatmulProblem problem = WithShape(24, 16, 40);
        problem.a_transposed = true;
        problem.a_stride = 24;
        problem.adds = adds;
        problem.summed = summed;
        const auto planner = MakePlanner({.autotunes = false});
        const auto matmul = planner->Find(problem, Effort::kMeasure);
        ASSERT_TRUE(matmul.ok()) << matmul.status();
        // cuBLASLt cannot add to earlier sums.
        EXPECT_EQ((*matmul)->own_epilogue().kernels, refuses || adds ? 1 : 0);
        ExpectRight(*planner, problem);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllTypes, EpilogueTest, testing::AllTypes(), testing::NameOfTypes);

// The forms with and without cuBLASLt's epilogue are measured against each other.
TEST(Epilogue, MeasuresWhetherAnEpilogueIsFaster) {
  MatmulProblem gelu = Problem(48, 40, 96, Type::kBf16, Type::kBf16);
  gelu.bias = true;
  gelu.activation = Activation::kGelu;
  gelu.aux_stride = 40;
  MatmulProblem sums = Problem(48, 40, 96, Type::kBf16, Type::kF32);
  sums.summed = Summed::kB;
  for (const MatmulProblem& problem : {gelu, sums}) {
    std::vector<PlanRecord> records;
    const auto planner = MakePlanner({.scrutiny = {.verifies = true, .records = &records}});
    ASSERT_TRUE(planner->Find(problem, Effort::kMeasure).ok());
    ASSERT_EQ(records.size(), 1U);
    EXPECT_EQ(records.front().candidates, 6) << "three algorithms of each form";
    EXPECT_THAT(records.front().refused, IsEmpty());
    const std::map<std::string, int> choices = planner->MeasuredChoices();
    ASSERT_EQ(choices.size(), 1U);
    // Another rank takes either form over.
    for (const int choice : {0, 5}) {
      const auto follower = MakePlanner();
      follower->TakeChoices({{choices.begin()->first, choice}});
      const auto matmul = follower->Find(problem, Effort::kMeasure);
      ASSERT_TRUE(matmul.ok()) << matmul.status();
      EXPECT_EQ((*matmul)->own_epilogue().kernels, choice == 0 ? 0 : 1);
      ExpectRight(*follower, problem);
    }
  }
}

// The library would not notice if it wrote over what it reads, but its emulation does.
TEST(Epilogue, DMayBeTheAddendButNoOtherOperand) {
  const auto planner = MakePlanner();
  MatmulProblem problem = Problem(8, 8, 8, Type::kF32, Type::kF32);
  problem.addend_stride = 8;
  const auto matmul = planner->Find(problem, Effort::kMeasure);
  ASSERT_TRUE(matmul.ok()) << matmul.status();
  DeviceMatrix memory(Type::kF32, 1, 1, 1024);
  DeviceMatrix workspace(Type::kF32, 1, 1, (*matmul)->workspace_bytes() / 4 + 1);
  float* const at = static_cast<float*>(memory.data());
  MatmulMemory places = {
      .a = at, .b = at + 64, .addend = at + 128, .d = at + 128, .workspace = workspace.data()};
  EXPECT_TRUE((*matmul)->Run(places, nullptr).ok());
  places.d = at + 32;
  EXPECT_TRUE(absl::IsInternal((*matmul)->Run(places, nullptr)));
  places.d = at + 160;
  EXPECT_TRUE(absl::IsInternal((*matmul)->Run(places, nullptr)));
  CheckCuda(cudaDeviceSynchronize());
}

}  // namespace
}  // namespace trainyard::engine::cuda::blas
