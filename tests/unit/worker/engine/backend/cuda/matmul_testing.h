// Runs products over the emulated cuBLASLt, and compares them with loops. Elements are small
// integers, so sums in f32 are exact however they are split, and only the intended roundings
// remain.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "worker/engine/backend/cuda/blas/matmul.h"
#include "worker/engine/backend/cuda/kernels/norm.h"

namespace trainyard::engine::cuda::blas::testing {

inline void CheckCuda(cudaError_t error) {
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

inline float Rounded(Type type, float value) {
  if (type == Type::kF16) return __half2float(__float2half_rn(value));
  if (type == Type::kBf16) return __bfloat162float(__float2bfloat16_rn(value));
  return value;
}

// Small integers that do not repeat at any row length.
inline float Element(int64_t row, int64_t column, int salt) {
  return static_cast<float>((row * 7 + column * 13 + (row ^ column) + salt) % 7 - 3);
}

inline constexpr double kGeluScale = 0.7978845608028654;  // sqrt(2 / pi)
inline constexpr double kGeluCube = 0.044715;

inline double Gelu(double x) {
  return 0.5 * x * (1 + std::tanh(kGeluScale * (x + kGeluCube * x * x * x)));
}
inline double GeluSlope(double x) {
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

inline std::unique_ptr<MatmulPlanner> MakePlanner(const MatmulOptions& options = {}) {
  auto planner = MatmulPlanner::Create(options);
  TY_CHECK_OK(planner.status());
  return *std::move(planner);
}

inline void ExpectRight(MatmulPlanner& planner, const MatmulProblem& problem) {
  const auto matmul = planner.Find(problem, Effort::kMeasure);
  ASSERT_TRUE(matmul.ok()) << matmul.status();
  Trial trial(problem);
  const absl::Status status = trial.Run(**matmul);
  ASSERT_TRUE(status.ok()) << status;
  trial.ExpectRight();
}

inline MatmulProblem Problem(int64_t m, int64_t n, int64_t k, Type input, Type output) {
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

// The types of the inputs and of the output.
class MatmulTest : public ::testing::TestWithParam<std::tuple<Type, Type>> {
 protected:
  MatmulProblem WithShape(int64_t m, int64_t n, int64_t k) const {
    return Problem(m, n, k, std::get<0>(GetParam()), std::get<1>(GetParam()));
  }
};

// Every combination of types that a product can have.
inline auto AllTypes() {
  return ::testing::Values(std::tuple(Type::kF32, Type::kF32), std::tuple(Type::kF16, Type::kF16),
                           std::tuple(Type::kF16, Type::kF32), std::tuple(Type::kBf16, Type::kBf16),
                           std::tuple(Type::kBf16, Type::kF32));
}
inline std::string NameOfTypes(const ::testing::TestParamInfo<std::tuple<Type, Type>>& instance) {
  const auto name = [](Type type) {
    return type == Type::kF32 ? "F32" : type == Type::kF16 ? "F16" : "Bf16";
  };
  return std::string(name(std::get<0>(instance.param))) + "To" + name(std::get<1>(instance.param));
}

}  // namespace trainyard::engine::cuda::blas::testing
