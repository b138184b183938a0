// Every instruction set that this machine runs gives what the baseline gives.
#include "worker/engine/backend/cpu/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/unit/worker/engine/engine_testing.h"

namespace trainyard::engine::cpu {
namespace {

using testing::RandomValues;
using Floats = std::vector<float>;

std::vector<const Kernels*> RunnableKernels() {
  std::vector<const Kernels*> sets;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    sets.push_back(&kAvx2Kernels);
  }
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    sets.push_back(&kAvx512Kernels);
  }
  return sets;
}

// What all kernels make of the same random inputs, one after the other.
std::vector<Floats> RunAll(const Kernels& kernels, int64_t block) {
  constexpr int64_t kCount = 333;  // fills no vector
  std::vector<Floats> results;
  const Floats a = RandomValues(1, kCount);
  const Floats b = RandomValues(2, kCount);
  Floats y(kCount);
  kernels.relu(a.data(), y.data(), kCount);
  results.push_back(y);
  kernels.relu_gradient(a.data(), b.data(), y.data(), kCount);
  results.push_back(y);
  Floats wide = a;  // reaches the tails
  for (size_t i = 0; i < wide.size(); ++i) {
    wide[i] *= static_cast<float>(i) * 0.1f;
  }
  for (const auto& unary : {kernels.tanh, kernels.sigmoid, kernels.gelu, kernels.gelu_tanh}) {
    unary(wide.data(), y.data(), kCount);
    results.push_back(y);
  }
  for (const auto& gradient : {kernels.tanh_gradient, kernels.sigmoid_gradient,
                               kernels.gelu_gradient, kernels.gelu_tanh_gradient}) {
    gradient(a.data(), b.data(), y.data(), kCount);
    results.push_back(y);
  }
  kernels.add(a.data(), b.data(), y.data(), kCount);
  results.push_back(y);

  kernels.dropout({{1, 2}, 3, 4, 5, 0x60000000, 1.6f}, kCount, a.data(), y.data());
  results.push_back(y);
  for (const float beta : {0.75f, 0.6f}) {
    const LrnRule lrn = {5, 1.5f, 0.4f, beta};
    constexpr int64_t kPlane = 5;
    const int64_t blocks = 16 / block + 1;
    const int64_t count = blocks * kPlane * block;
    Floats out(static_cast<size_t>(count));
    Floats scratch(static_cast<size_t>(LrnScratch(lrn, blocks * block)));
    kernels.lrn(lrn, blocks, kPlane, block, a.data(), out.data(), scratch.data());
    results.push_back(out);
    kernels.lrn_gradient(lrn, blocks, kPlane, block, b.data(), a.data(), out.data(),
                         scratch.data());
    results.push_back(out);
  }
  float largest = 0;
  float total = 0;
  kernels.softmax(kCount, 3.0f, a.data(), y.data(), &largest, &total);
  results.insert(results.end(), {y, {largest, total}});
  kernels.exponential(kCount, 2.0f, 0.5f, a.data(), y.data());
  results.push_back(y);
  kernels.softmax_gradient(kCount, 0.7f, a.data(), b.data(), y.data());
  results.push_back(y);
  kernels.layer_norm(kCount, 1e-5f, a.data(), b.data(), a.data(), y.data(), &largest, &total);
  results.insert(results.end(), {y, {largest, total}});
  kernels.layer_norm_gradient(kCount, 0.1f, 1.5f, a.data(), b.data(), a.data(), y.data());
  results.push_back(y);
  Floats dweight(30);
  Floats dbias(30);
  kernels.layer_norm_sums(3, 100, 30, b.data(), a.data(), a.data(), b.data(), dweight.data(),
                          dbias.data());
  results.insert(results.end(), {dweight, dbias});
  const PoolShape shape = {7, 6, 4, 3, 3, 2, 1, true};
  const int64_t plane = shape.height * shape.width;
  const int64_t out_plane = shape.out_height * shape.out_width;
  const Floats x = RandomValues(4, plane * block);
  const Floats dy = RandomValues(5, out_plane * block);
  Floats pooled(static_cast<size_t>(out_plane * block));
  Floats dx(x.size());
  std::vector<uint8_t> index(pooled.size());
  kernels.max_pool(shape, block, x.data(), pooled.data(), index.data(), true);
  results.push_back(pooled);
  results.emplace_back(index.begin(), index.end());
  kernels.max_pool_gradient(shape, block, dy.data(), index.data(), dx.data());
  results.push_back(dx);
  kernels.avg_pool(shape, block, x.data(), pooled.data());
  results.push_back(pooled);
  kernels.avg_pool_gradient(shape, block, dy.data(), dx.data());
  results.push_back(dx);

  Floats lane(static_cast<size_t>(block));
  Floats lane2(static_cast<size_t>(block));
  kernels.mean(plane, block, x.data(), lane.data());
  results.push_back(lane);
  kernels.mean_gradient(plane, block, lane.data(), dx.data());
  results.push_back(dx);
  kernels.moments(plane, block, x.data(), lane.data(), lane2.data());
  results.insert(results.end(), {lane, lane2});
  kernels.normalize(plane, block, x.data(), lane2.data(), lane.data(), true, dx.data());
  results.push_back(dx);
  const Floats g = RandomValues(6, plane * block);
  Floats sum(lane.size());
  Floats sum_x(lane.size());
  kernels.norm_gradient_sums(plane, block, g.data(), x.data(), lane2.data(), lane.data(),
                             lane.data(), sum.data(), sum_x.data());
  results.insert(results.end(), {sum, sum_x});
  Floats out(x.size());
  kernels.norm_gradient(plane, block, g.data(), x.data(), lane2.data(), lane.data(), lane.data(),
                        sum.data(), sum_x.data(), nullptr, out.data());
  results.push_back(out);
  kernels.norm_gradient(plane, block, g.data(), x.data(), nullptr, nullptr, lane.data(), sum.data(),
                        sum_x.data(), dx.data(), out.data());
  results.push_back(out);

  std::vector<uint8_t> mask(static_cast<size_t>(MaskBytes(plane, block)));
  kernels.normalize_residual(plane, block, x.data(), lane2.data(), lane.data(), g.data(),
                             out.data(), mask.data());
  results.push_back(out);
  results.emplace_back(mask.begin(), mask.end());
  kernels.residual_gradient_sums(plane, block, g.data(), x.data(), mask.data(), x.data(),
                                 lane.data(), out.data(), sum.data(), sum_x.data());
  results.insert(results.end(), {out, sum, sum_x});
  return results;
}

TEST(Kernels, OfEveryInstructionSetAgreeWithTheBaseline) {
  for (const int64_t block : {1, 8, 16}) {
    const std::vector<Floats> expected = RunAll(kBaselineKernels, block);
    for (const Kernels* kernels : RunnableKernels()) {
      SCOPED_TRACE(kernels->name);
      const std::vector<Floats> actual = RunAll(*kernels, block);
      ASSERT_EQ(actual.size(), expected.size());
      for (size_t i = 0; i < actual.size(); ++i) {
        testing::ExpectNear(actual[i], expected[i], 2e-6, "result " + std::to_string(i));
      }
    }
  }
}

TEST(Kernels, OfActivationsAreWithinTheirErrorEverywhere) {
  using Double = double (*)(double);
  const Double exact[] = {
      [](double x) { return std::tanh(x); }, [](double x) { return 1 / (1 + std::exp(-x)); },
      [](double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); },
      [](double x) {
        return 0.5 * x *
               (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
      }};
  const Kernels& k = BestKernels();
  Floats x;
  for (float v = -120; v <= 120; v += 0.01171875f) {
    x.push_back(v);
  }
  Floats y(x.size());
  int which = 0;
  for (const auto& kernel : {k.tanh, k.sigmoid, k.gelu, k.gelu_tanh}) {
    kernel(x.data(), y.data(), static_cast<int64_t>(x.size()));
    for (size_t i = 0; i < x.size(); ++i) {
      const double expected = exact[which](static_cast<double>(x[i]));
      ASSERT_NEAR(y[i], expected, 3e-7 * std::max(1.0, std::abs(expected)))
          << "function " << which << " of " << x[i];
    }
    const float nan = std::numeric_limits<float>::quiet_NaN();
    kernel(&nan, y.data(), 1);
    EXPECT_TRUE(std::isnan(y[0])) << "function " << which;
    ++which;
  }
}

TEST(Kernels, RunOnThisMachine) {
  EXPECT_STRNE(BestKernels().name, "");
  Floats y(5);
  BestKernels().relu(Floats{-1, 2, -3, 4, 0}.data(), y.data(), 5);
  EXPECT_EQ(y, (Floats{0, 2, 0, 4, 0}));
}

}  // namespace
}  // namespace trainyard::engine::cpu
