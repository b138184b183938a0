// Compares products over the emulated cuBLASLt with loops in f64. Elements are small integers, so
// sums in f32 are exact however they are split, and only the intended roundings remain.
#include "worker/engine/backend/cuda/blas/matmul.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "common/base/check.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/cuda_on_cpu/cublaslt/cublaslt_on_cpu.h"
#include "tests/testing/cuda_on_cpu/cuda_on_cpu.h"

namespace trainyard::engine::cuda::blas {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

void CheckCuda(cudaError_t error) {
  TY_CHECK(error == cudaSuccess);
}

// A row-major matrix in device memory. The gaps between its rows are NaN and must stay so.
class DeviceMatrix {
 public:
  DeviceMatrix(Type type, int64_t rows, int64_t columns, int64_t stride)
      : type_(type), rows_(rows), columns_(columns), stride_(stride) {
    CheckCuda(cudaMalloc(&data_, bytes()));
    Fill([](int64_t, int64_t) { return std::nanf(""); });
  }
  ~DeviceMatrix() { CheckCuda(cudaFree(data_)); }
  DeviceMatrix(const DeviceMatrix&) = delete;
  DeviceMatrix& operator=(const DeviceMatrix&) = delete;

  void* data() const { return data_; }

  template <class Value>
  void Fill(const Value& value) {
    std::vector<std::byte> host(bytes());
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t c = 0; c < stride_; ++c) {
        Store(host, r * stride_ + c, c < columns_ ? value(r, c) : std::nanf(""));
      }
    }
    CheckCuda(cudaMemcpy(data_, host.data(), host.size(), cudaMemcpyHostToDevice));
    // Other streams do not wait for the copy.
    CheckCuda(cudaStreamSynchronize(nullptr));
  }

  // [rows, stride], in f32.
  std::vector<float> Read() const {
    std::vector<std::byte> host(bytes());
    CheckCuda(cudaDeviceSynchronize());
    CheckCuda(cudaMemcpy(host.data(), data_, host.size(), cudaMemcpyDeviceToHost));
    std::vector<float> values(static_cast<size_t>(rows_ * stride_));
    for (size_t i = 0; i < values.size(); ++i) values[i] = Load(host, static_cast<int64_t>(i));
    return values;
  }

 private:
  size_t bytes() const { return static_cast<size_t>(rows_ * stride_ * SizeOf(type_)); }

  void Store(std::vector<std::byte>& host, int64_t at, float value) const {
    std::byte* target = host.data() + at * SizeOf(type_);
    if (type_ == Type::kF32) {
      std::memcpy(target, &value, sizeof(value));
    } else if (type_ == Type::kF16) {
      const __half half = __float2half_rn(value);
      std::memcpy(target, &half, sizeof(half));
    } else {
      const __nv_bfloat16 half = __float2bfloat16_rn(value);
      std::memcpy(target, &half, sizeof(half));
    }
  }
  float Load(const std::vector<std::byte>& host, int64_t at) const {
    const std::byte* source = host.data() + at * SizeOf(type_);
    if (type_ == Type::kF32) {
      float value = 0;
      std::memcpy(&value, source, sizeof(value));
      return value;
    }
    if (type_ == Type::kF16) {
      __half half;
      std::memcpy(static_cast<void*>(&half), source, sizeof(half));
      return __half2float(half);
    }
    __nv_bfloat16 half;
    std::memcpy(static_cast<void*>(&half), source, sizeof(half));
    return __bfloat162float(half);
  }

  const Type type_;
  const int64_t rows_, columns_, stride_;
  void* data_ = nullptr;
};

float Rounded(Type type, float value) {
  if (type == Type::kF16) return __half2float(__float2half_rn(value));
  if (type == Type::kBf16) return __bfloat162float(__float2bfloat16_rn(value));
  return value;
}

// Small integers that do not repeat at any row length.
float Element(int64_t row, int64_t column, int salt) {
  return static_cast<float>((row * 7 + column * 13 + (row ^ column) + salt) % 7 - 3);
}

// Runs one problem and compares every element.
class Trial {
 public:
  explicit Trial(const MatmulProblem& problem)
      : problem_(problem),
        a_(problem.input, problem.a_transposed ? problem.k : problem.m,
           problem.a_transposed ? problem.m : problem.k, problem.a_stride),
        b_(problem.input, problem.b_transposed ? problem.n : problem.k,
           problem.b_transposed ? problem.k : problem.n, problem.b_stride),
        bias_(problem.output, 1, problem.n, problem.n),
        d_(problem.output, problem.m, problem.n, problem.d_stride) {
    a_.Fill([&](int64_t r, int64_t c) { return problem.a_transposed ? A(c, r) : A(r, c); });
    b_.Fill([&](int64_t r, int64_t c) { return problem.b_transposed ? B(c, r) : B(r, c); });
    bias_.Fill([](int64_t, int64_t c) { return Bias(c); });
    if (problem.adds) d_.Fill([](int64_t r, int64_t c) { return Before(r, c); });
  }

  absl::Status Run(const Matmul& matmul, cudaStream_t stream = nullptr) {
    has_own_epilogue_ = matmul.has_own_epilogue();
    CheckCuda(cudaMalloc(&workspace_, static_cast<size_t>(matmul.workspace_bytes()) + 1));
    absl::Status status = matmul.Run(a_.data(), b_.data(), problem_.bias ? bias_.data() : nullptr,
                                     d_.data(), workspace_, stream);
    CheckCuda(cudaDeviceSynchronize());
    CheckCuda(cudaFree(workspace_));
    return status;
  }

  std::vector<float> result() const { return d_.Read(); }

  void ExpectRight() const {
    const std::vector<float> got = d_.Read();
    for (int64_t r = 0; r < problem_.m; ++r) {
      for (int64_t c = 0; c < problem_.d_stride; ++c) {
        const float value = got[static_cast<size_t>(r * problem_.d_stride + c)];
        if (c >= problem_.n) {
          ASSERT_TRUE(std::isnan(value)) << "wrote beyond row " << r;
          continue;
        }
        float product = 0;
        for (int64_t k = 0; k < problem_.k; ++k) product += A(r, k) * B(k, c);
        if (problem_.adds) product += Before(r, c);
        float expected = product + (problem_.bias ? Bias(c) : 0);
        if (problem_.relu) expected = std::max(expected, 0.0F);
        // A kernel of our own reads a value that was already rounded once.
        const float tolerance = has_own_epilogue_ && problem_.output != Type::kF32
                                    ? (std::abs(product) + std::abs(expected)) / 256
                                    : 0;
        ASSERT_NEAR(value, Rounded(problem_.output, expected), tolerance)
            << problem_.Key() << " at " << r << ", " << c;
      }
    }
  }

 private:
  static float A(int64_t r, int64_t k) { return Element(r, k, 1); }
  static float B(int64_t k, int64_t c) { return Element(k, c, 5); }
  static float Bias(int64_t c) { return static_cast<float>(c % 11) / 4 - 1; }
  static float Before(int64_t r, int64_t c) { return Element(r, c, 3); }

  const MatmulProblem problem_;
  DeviceMatrix a_, b_, bias_, d_;
  void* workspace_ = nullptr;
  bool has_own_epilogue_ = false;
};

std::unique_ptr<MatmulPlanner> MakePlanner(const MatmulOptions& options = {}) {
  auto planner = MatmulPlanner::Create(options);
  TY_CHECK_OK(planner.status());
  return *std::move(planner);
}

void ExpectRight(MatmulPlanner& planner, const MatmulProblem& problem) {
  const auto matmul = planner.Find(problem, Effort::kMeasure);
  ASSERT_TRUE(matmul.ok()) << matmul.status();
  Trial trial(problem);
  const absl::Status status = trial.Run(**matmul);
  ASSERT_TRUE(status.ok()) << status;
  trial.ExpectRight();
}

MatmulProblem Problem(int64_t m, int64_t n, int64_t k, Type input, Type output) {
  MatmulProblem problem;
  problem.m = m;
  problem.n = n;
  problem.k = k;
  problem.input = input;
  problem.output = output;
  problem.a_stride = k;
  problem.b_stride = n;
  problem.d_stride = n;
  return problem;
}

class MatmulTest : public ::testing::TestWithParam<std::tuple<Type, Type>> {
 protected:
  MatmulProblem WithShape(int64_t m, int64_t n, int64_t k) const {
    return Problem(m, n, k, std::get<0>(GetParam()), std::get<1>(GetParam()));
  }
};

TEST_P(MatmulTest, EveryTransposeEpilogueAndSumIsThatOfTheLoops) {
  const auto planner = MakePlanner();
  for (int choice = 0; choice < 32; ++choice) {
    MatmulProblem problem = WithShape(24, 16, 40);
    problem.a_transposed = (choice & 1) != 0;
    problem.b_transposed = (choice & 2) != 0;
    problem.adds = (choice & 4) != 0;
    problem.bias = (choice & 8) != 0;
    problem.relu = (choice & 16) != 0;
    problem.a_stride = problem.a_transposed ? 24 : 40;
    problem.b_stride = problem.b_transposed ? 40 : 16;
    ExpectRight(*planner, problem);
  }
}

TEST_P(MatmulTest, AKernelOfOursDoesAnEpilogueThatIsRefused) {
  cuda_on_cpu::RefuseEpilogues(true);
  const absl::Cleanup offer = [] { cuda_on_cpu::RefuseEpilogues(false); };
  const auto planner = MakePlanner();
  for (int choice = 0; choice < 4; ++choice) {
    MatmulProblem problem = WithShape(24, 16, 40);
    problem.bias = (choice & 1) != 0;
    problem.relu = (choice & 2) != 0;
    const auto matmul = planner->Find(problem, Effort::kMeasure);
    ASSERT_TRUE(matmul.ok()) << matmul.status();
    EXPECT_EQ((*matmul)->has_own_epilogue(), choice != 0);
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
      problem.bias = problem.relu = true;
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

INSTANTIATE_TEST_SUITE_P(
    AllTypes, MatmulTest,
    ::testing::Values(std::tuple(Type::kF32, Type::kF32), std::tuple(Type::kF16, Type::kF16),
                      std::tuple(Type::kF16, Type::kF32), std::tuple(Type::kBf16, Type::kBf16),
                      std::tuple(Type::kBf16, Type::kF32)),
    [](const auto& instance) {
      const auto name = [](Type type) {
        return type == Type::kF32 ? "F32" : type == Type::kF16 ? "F16" : "Bf16";
      };
      return std::string(name(std::get<0>(instance.param))) + "To" +
             name(std::get<1>(instance.param));
    });

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
  TY_CHECK_OK((*matmul)->Run(a.data(), b.data(), nullptr, d.data(), workspace.data(), nullptr));
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
  ASSERT_TRUE((*matmul)->Run(a.data(), b.data(), nullptr, d.data(), workspace.data(), stream).ok());
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
}

TEST(Matmul, PointersThatAreNotAlignedAndMissingBiasesAreRefused) {
  const auto planner = MakePlanner();
  MatmulProblem problem = Problem(4, 4, 4, Type::kF32, Type::kF32);
  problem.bias = true;
  const auto matmul = planner->Find(problem, Effort::kMeasure);
  ASSERT_TRUE(matmul.ok()) << matmul.status();
  DeviceMatrix memory(Type::kF32, 1, 1, 1024);
  float* at = static_cast<float*>(memory.data());
  EXPECT_TRUE(absl::IsInvalidArgument((*matmul)->Run(at + 1, at, at, at + 64, nullptr, nullptr)));
  EXPECT_THAT(std::string((*matmul)->Run(at, at, nullptr, at + 64, nullptr, nullptr).message()),
              HasSubstr("bias is missing"));
}

TEST(Matmul, WithoutAGpuThereIsNoPlanner) {
  cuda_on_cpu::SetDeviceCount(cuda_on_cpu::kNoDriver);
  const auto planner = MatmulPlanner::Create({});
  cuda_on_cpu::SetDeviceCount(1);
  EXPECT_TRUE(absl::IsUnavailable(planner.status())) << planner.status();
}

}  // namespace
}  // namespace trainyard::engine::cuda::blas
