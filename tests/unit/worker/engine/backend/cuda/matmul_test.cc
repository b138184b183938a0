// Compares products over the emulated cuBLASLt with loops in f64. Elements are small integers, so
// sums in f32 are exact however they are split, and only the intended roundings remain.
#include "worker/engine/backend/cuda/blas/matmul.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
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
#include "worker/engine/backend/cuda/kernels/norm.h"

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

constexpr double kGeluScale = 0.7978845608028654;  // sqrt(2 / pi)
constexpr double kGeluCube = 0.044715;

double Gelu(double x) {
  return 0.5 * x * (1 + std::tanh(kGeluScale * (x + kGeluCube * x * x * x)));
}
double GeluSlope(double x) {
  const double t = std::tanh(kGeluScale * (x + kGeluCube * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * kGeluScale * (1 + 3 * kGeluCube * x * x);
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
        addend_(problem.output, problem.m, problem.n, std::max(problem.n, problem.addend_stride)),
        bias_(problem.output, 1, problem.n, problem.n),
        aux_(problem.output, problem.m, problem.n, std::max(problem.n, problem.aux_stride)),
        d_(problem.output, problem.m, problem.n, problem.d_stride),
        sums_(Type::kF32, 1, SumsOf(problem), SumsOf(problem)),
        tickets_(Type::kF32, 1, kNormTickets / 4, kNormTickets / 4) {
    a_.Fill([&](int64_t r, int64_t c) { return problem.a_transposed ? A(c, r) : A(r, c); });
    b_.Fill([&](int64_t r, int64_t c) { return problem.b_transposed ? B(c, r) : B(r, c); });
    addend_.Fill([](int64_t r, int64_t c) { return Addend(r, c); });
    bias_.Fill([](int64_t, int64_t c) { return Bias(c); });
    if (problem.activation == Activation::kGeluGradient) {
      aux_.Fill([](int64_t r, int64_t c) { return Aux(r, c); });
    }
    if (problem.adds) d_.Fill([](int64_t r, int64_t c) { return Before(r, c); });
    if (problem.adds) sums_.Fill([](int64_t, int64_t c) { return Before(0, c); });
    tickets_.Fill([](int64_t, int64_t) { return 0.0F; });
  }

  absl::Status Run(const Matmul& matmul, cudaStream_t stream = nullptr) {
    own_kernels_ = matmul.own_epilogue().kernels;
    CheckCuda(cudaMalloc(&workspace_, static_cast<size_t>(matmul.workspace_bytes()) + 1));
    MatmulMemory memory = {.a = a_.data(), .b = b_.data(), .d = d_.data(), .workspace = workspace_};
    if (problem_.addend_stride != 0) memory.addend = addend_.data();
    if (problem_.bias) memory.bias = bias_.data();
    if (problem_.aux_stride != 0) memory.aux = aux_.data();
    if (problem_.summed != Summed::kNone) {
      memory.sums = static_cast<float*>(sums_.data());
      memory.tickets = static_cast<uint32_t*>(tickets_.data());
    }
    absl::Status status = matmul.Run(memory, stream);
    CheckCuda(cudaDeviceSynchronize());
    CheckCuda(cudaFree(workspace_));
    return status;
  }

  void ExpectRight() const {
    const std::vector<float> got = d_.Read();
    const std::vector<float> aux = aux_.Read();
    for (int64_t r = 0; r < problem_.m; ++r) {
      for (int64_t c = 0; c < problem_.d_stride; ++c) {
        const float value = got[static_cast<size_t>(r * problem_.d_stride + c)];
        if (c >= problem_.n) {
          ASSERT_TRUE(std::isnan(value)) << "wrote beyond row " << r;
          continue;
        }
        ExpectElement(r, c, value, aux[static_cast<size_t>(r * aux_stride() + c)]);
      }
      for (int64_t c = problem_.n; c < aux_stride(); ++c) {
        ASSERT_TRUE(std::isnan(aux[static_cast<size_t>(r * aux_stride() + c)]));
      }
    }
    if (problem_.summed != Summed::kNone) ExpectSums();
  }

 private:
  static float A(int64_t r, int64_t k) { return Element(r, k, 1); }
  static float B(int64_t k, int64_t c) { return Element(k, c, 5); }
  static float Addend(int64_t r, int64_t c) { return Element(r, c, 2) / 2; }
  static float Aux(int64_t r, int64_t c) { return Element(r, c, 4) / 2; }
  static float Bias(int64_t c) { return static_cast<float>(c % 11) / 4 - 1; }
  static float Before(int64_t r, int64_t c) { return Element(r, c, 3); }
  static int64_t SumsOf(const MatmulProblem& problem) {
    return problem.summed == Summed::kA ? problem.m : problem.n;
  }
  int64_t aux_stride() const { return std::max(problem_.n, problem_.aux_stride); }

  void ExpectElement(int64_t r, int64_t c, float value, float aux) const {
    float product = 0;
    for (int64_t k = 0; k < problem_.k; ++k) product += A(r, k) * B(k, c);
    if (problem_.adds) product += Before(r, c);
    if (problem_.addend_stride != 0) product += Addend(r, c);
    const float before = product + (problem_.bias ? Bias(c) : 0);
    float expected = before;
    if (problem_.activation == Activation::kRelu) expected = std::max(before, 0.0F);
    if (problem_.activation == Activation::kGelu) expected = static_cast<float>(Gelu(before));
    if (problem_.activation == Activation::kGeluGradient) {
      expected = static_cast<float>(before * GeluSlope(Aux(r, c)));
    }
    // A kernel of our own reads a value that was already rounded once.
    const float size = std::abs(product) + std::abs(expected);
    float tolerance = own_kernels_ > 0 && problem_.output != Type::kF32 ? size / 256 : 0;
    // GELU is not exact.
    if (problem_.activation == Activation::kGelu ||
        problem_.activation == Activation::kGeluGradient) {
      tolerance += problem_.output == Type::kF32    ? size / (1 << 20)
                   : problem_.output == Type::kBf16 ? size / 256
                                                    : size / 2048;
    }
    ASSERT_NEAR(value, Rounded(problem_.output, expected), tolerance)
        << problem_.Key() << " at " << r << ", " << c;
    if (problem_.activation == Activation::kGelu && problem_.aux_stride != 0) {
      ASSERT_NEAR(aux, Rounded(problem_.output, before),
                  own_kernels_ > 0 && problem_.output != Type::kF32 ? size / 256 : 0)
          << problem_.Key() << ": aux at " << r << ", " << c;
    }
  }

  void ExpectSums() const {
    const std::vector<float> sums = sums_.Read();
    for (size_t i = 0; i < sums.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      float expected = problem_.adds ? Before(0, at) : 0;
      for (int64_t k = 0; k < problem_.k; ++k) {
        expected += problem_.summed == Summed::kA ? A(at, k) : B(k, at);
      }
      ASSERT_EQ(sums[i], expected) << problem_.Key() << ": sum " << i;
    }
  }

  const MatmulProblem problem_;
  DeviceMatrix a_, b_, addend_, bias_, aux_, d_, sums_, tickets_;
  void* workspace_ = nullptr;
  int64_t own_kernels_ = 0;
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
    if ((choice & 16) != 0) problem.activation = Activation::kRelu;
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

TEST_P(MatmulTest, GeluAndItsGradientAreThoseByTanh) {
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

TEST_P(MatmulTest, KernelsOfOursDoWhatIsRefusedOfGelu) {
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

TEST_P(MatmulTest, AnAuxWhoseRowsAreNoMultipleOfEightIsNoneOfCublas) {
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

TEST_P(MatmulTest, AnAddendIsAddedInPlaceOrFromAfar) {
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

TEST_P(MatmulTest, SumsOfAnInputAreThoseOfTheLoops) {
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

// The forms with and without cuBLASLt's epilogue are measured against each other.
TEST(Matmul, MeasuresWhetherAnEpilogueIsFaster) {
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

// What a product writes must lie apart from what it reads. The library would not notice, but its
// emulation does.
TEST(Matmul, DMayBeTheAddendButNoOtherOperand) {
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

TEST(Matmul, WithoutAGpuThereIsNoPlanner) {
  cuda_on_cpu::SetDeviceCount(cuda_on_cpu::kNoDriver);
  const auto planner = MatmulPlanner::Create({});
  cuda_on_cpu::SetDeviceCount(1);
  EXPECT_TRUE(absl::IsUnavailable(planner.status())) << planner.status();
}

}  // namespace
}  // namespace trainyard::engine::cuda::blas
