// Tests that every instruction set of this machine gives the same results as the baseline.
#include "worker/engine/backend/cpu/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <limits>
#include <type_traits>
#include <utility>

#include "tests/unit/worker/engine/engine_testing.h"

namespace trainyard::engine::cpu {
namespace {

using testing::RandomValues;
using Floats = std::vector<float>;

std::vector<const Kernels<float>*> RunnableKernels() {
  std::vector<const Kernels<float>*> sets;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    sets.push_back(&kAvx2Kernels);
  }
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    sets.push_back(&kAvx512Kernels);
  }
  return sets;
}

// Values as they lie in memory.
template <class T>
class Stored {
 public:
  explicit Stored(size_t count) : values_(count) {}
  explicit Stored(const Floats& values) : values_(values.size()) {
    for (size_t i = 0; i < values.size(); ++i) {
      if constexpr (std::is_same_v<T, float>) {
        values_[i] = values[i];
      } else {
        values_[i].bits = static_cast<uint16_t>(std::bit_cast<uint32_t>(values[i]) >> 16);
      }
    }
  }
  T* data() { return values_.data(); }
  size_t size() const { return values_.size(); }
  operator Floats() const {
    Floats values;
    for (const T value : values_) {
      if constexpr (std::is_same_v<T, float>) {
        values.push_back(value);
      } else {
        values.push_back(std::bit_cast<float>(uint32_t{value.bits} << 16));
      }
    }
    return values;
  }

 private:
  std::vector<T> values_;
};

// Returns the results of all kernels for the same random inputs, one after the other. With
// `is_short`, the inputs are values that bf16 can hold.
template <class T>
std::vector<Floats> RunAll(const Kernels<T>& kernels, int64_t block, bool is_short = false) {
  const auto RandomValues = [is_short](uint64_t seed, int64_t count) {
    Floats values = testing::RandomValues(seed, count);
    for (float& value : values) {
      value = is_short ? std::round(value * 128) / 128 : value;
    }
    return values;
  };
  constexpr int64_t kCount = 333;  // fills no vector
  std::vector<Floats> results;
  Floats a_floats = RandomValues(1, kCount);
  Floats b_floats = RandomValues(2, kCount);
  Stored<T> a(a_floats);
  Stored<T> b(b_floats);
  Stored<T> y(kCount);
  Floats y_floats(kCount);
  kernels.relu(a.data(), y.data(), kCount);
  results.push_back(y);
  kernels.relu_gradient(a.data(), b.data(), y.data(), kCount);
  results.push_back(y);
  Floats wide_floats = a_floats;  // reaches the tails
  for (size_t i = 0; i < wide_floats.size(); ++i) {
    wide_floats[i] *= is_short ? static_cast<float>(1 << i % 6) : static_cast<float>(i) * 0.1f;
  }
  Stored<T> wide(wide_floats);
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
  kernels.add_floats(a.data(), b_floats.data(), y.data(), kCount);
  results.push_back(y);
  y_floats = b_floats;
  kernels.accumulate(a.data(), y_floats.data(), kCount);
  results.push_back(y_floats);
  kernels.load(a.data(), y_floats.data(), kCount);
  results.push_back(y_floats);
  kernels.store(wide_floats.data(), y.data(), kCount);
  results.push_back(y);

  kernels.dropout({{1, 2}, 3, 4, 5, 0x60000000, 1.6f}, kCount, a.data(), y.data());
  results.push_back(y);
  for (const float beta : {0.75f, 0.6f}) {
    const LrnRule lrn = {5, 1.5f, 0.4f, beta};
    constexpr int64_t kPlane = 5;
    const int64_t blocks = 16 / block + 1;
    const int64_t count = blocks * kPlane * block;
    Stored<T> out(static_cast<size_t>(count));
    Floats scratch(static_cast<size_t>(LrnScratch(lrn, blocks * block)));
    kernels.lrn(lrn, blocks, kPlane, block, a.data(), out.data(), scratch.data());
    results.push_back(out);
    kernels.lrn_gradient(lrn, blocks, kPlane, block, b.data(), a.data(), out.data(),
                         scratch.data());
    results.push_back(out);
  }
  float largest = 0;
  float total = 0;
  kernels.softmax(kCount, 3.0f, a_floats.data(), y_floats.data(), &largest, &total);
  results.insert(results.end(), {y_floats, {largest, total}});
  kernels.exponential(kCount, 2.0f, 0.5f, a_floats.data(), y_floats.data());
  results.push_back(y_floats);
  kernels.softmax_gradient(kCount, 0.7f, a_floats.data(), b_floats.data(), y_floats.data());
  results.push_back(y_floats);
  kernels.layer_norm(kCount, 1e-5f, a.data(), b_floats.data(), a_floats.data(), y.data(), &largest,
                     &total);
  results.insert(results.end(), {y, {largest, total}});
  kernels.layer_norm_gradient(kCount, 0.1f, 1.5f, a.data(), b.data(), a_floats.data(), y.data());
  results.push_back(y);
  Floats dweight(30);
  Floats dbias(30);
  kernels.layer_norm_sums(3, 100, 30, b_floats.data(), a_floats.data(), a.data(), b.data(),
                          dweight.data(), dbias.data());
  results.insert(results.end(), {dweight, dbias});
  const PoolShape shape = {7, 6, 4, 3, 3, 2, 1, true};
  const int64_t plane = shape.height * shape.width;
  const int64_t out_plane = shape.out_height * shape.out_width;
  Stored<T> x(RandomValues(4, plane * block));
  Stored<T> dy(RandomValues(5, out_plane * block));
  Stored<T> pooled(static_cast<size_t>(out_plane * block));
  Stored<T> dx(x.size());
  Floats sums(x.size());
  std::vector<uint8_t> index(pooled.size());
  kernels.max_pool(shape, block, x.data(), pooled.data(), index.data(), true);
  results.push_back(pooled);
  results.emplace_back(index.begin(), index.end());
  kernels.max_pool_gradient(shape, block, dy.data(), index.data(), dx.data(), sums.data());
  results.push_back(dx);
  kernels.avg_pool(shape, block, x.data(), pooled.data());
  results.push_back(pooled);
  kernels.avg_pool_gradient(shape, block, dy.data(), dx.data(), sums.data());
  results.push_back(dx);

  Floats lane(static_cast<size_t>(block));
  Floats lane2(static_cast<size_t>(block));
  Stored<T> mean(lane.size());
  kernels.mean(plane, block, x.data(), mean.data());
  results.push_back(mean);
  kernels.mean_gradient(plane, block, mean.data(), dx.data());
  results.push_back(dx);
  kernels.moments(plane, block, x.data(), lane.data(), lane2.data());
  results.insert(results.end(), {lane, lane2});
  kernels.normalize(plane, block, x.data(), lane2.data(), lane.data(), true, dx.data());
  results.push_back(dx);
  Stored<T> g(RandomValues(6, plane * block));
  Floats sum(lane.size());
  Floats sum_x(lane.size());
  kernels.norm_gradient_sums(plane, block, g.data(), x.data(), lane2.data(), lane.data(),
                             lane.data(), sum.data(), sum_x.data());
  results.insert(results.end(), {sum, sum_x});
  Stored<T> out(x.size());
  kernels.norm_gradient(plane, block, g.data(), x.data(), lane2.data(), lane.data(), lane.data(),
                        sum.data(), sum_x.data(), nullptr, out.data());
  results.push_back(out);
  kernels.norm_gradient(plane, block, g.data(), x.data(), nullptr, nullptr, lane.data(), sum.data(),
                        sum_x.data(), g.data(), out.data());
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
    for (const Kernels<float>* kernels : RunnableKernels()) {
      SCOPED_TRACE(kernels->name);
      const std::vector<Floats> actual = RunAll(*kernels, block);
      ASSERT_EQ(actual.size(), expected.size());
      for (size_t i = 0; i < actual.size(); ++i) {
        testing::ExpectNear(actual[i], expected[i], 2e-6, "result " + std::to_string(i));
      }
    }
  }
}

// The results are compared with those of floats: each result is rounded once more, which errs by
// 2^-9 of it at most, and some are computed from such a result.
TEST(Kernels, OfBf16AgreeWithTheBaselineOfFloats) {
  if (!__builtin_cpu_supports("avx512bf16")) {
    GTEST_SKIP() << "this machine has no AVX512_BF16";
  }
  for (const int64_t block : {1, 8, 16}) {
    const std::vector<Floats> expected = RunAll(kBaselineKernels, block, true);
    const std::vector<Floats> actual = RunAll(kBf16Kernels, block, true);
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < actual.size(); ++i) {
      ASSERT_EQ(actual[i].size(), expected[i].size());
      for (size_t k = 0; k < actual[i].size(); ++k) {
        ASSERT_NEAR(actual[i][k], expected[i][k], std::abs(expected[i][k]) / 256 + 2e-5)
            << "block " << block << ", result " << i << ", element " << k;
      }
    }
  }
}

// Both ways are tested: the vectors' instruction, and the arithmetic of the elements that are left
// over.
TEST(Kernels, OfBf16RoundToTheNearest) {
  if (!__builtin_cpu_supports("avx512bf16")) {
    GTEST_SKIP() << "this machine has no AVX512_BF16";
  }
  const std::pair<uint32_t, uint16_t> cases[] = {
      {0x3f800000, 0x3f80}, {0x3f807fff, 0x3f80}, {0x3f808000, 0x3f80},  // a tie, to even
      {0x3f818000, 0x3f82},                                              // a tie, to even
      {0x3f808001, 0x3f81}, {0xbf808001, 0xbf81}, {0x7f7fffff, 0x7f80},  // too large
      {0x7f800000, 0x7f80}, {0xff800000, 0xff80}, {0x80000000, 0x8000},
      {0x7f800001, 0x7fc0}, {0xffc12345, 0xffc1},  // NaN
  };
  for (const auto& [bits, rounded] : cases) {
    const float value = std::bit_cast<float>(bits);
    for (const size_t count : {1, 37}) {
      std::vector<Bf16> stored(count);
      kBf16Kernels.store(Floats(count, value).data(), stored.data(), static_cast<int64_t>(count));
      for (const Bf16 each : stored) {
        EXPECT_EQ(each.bits, rounded) << value;
      }
    }
    // Computes x * 1 + 0, per lane of a block. A NaN's bits may differ.
    Bf16 in[16];
    Bf16 out[16];
    std::fill(std::begin(in), std::end(in), Bf16{0x3f80});
    const Floats scale(16, value);
    const Floats shift(16, 0.0f);
    kBf16Kernels.normalize(1, 16, in, scale.data(), shift.data(), false, out);
    for (const Bf16 each : out) {
      if (std::isnan(value)) {
        EXPECT_GT(each.bits & 0x7fff, 0x7f80);
      } else if (value != 0) {
        EXPECT_EQ(each.bits, rounded) << value;
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
  const Kernels<float>& k = BestKernels<float>();
  // The values go from -120 to 120.
  Floats x(20481);
  for (size_t i = 0; i < x.size(); ++i) x[i] = -120 + 0.01171875F * static_cast<float>(i);
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
  EXPECT_STRNE(BestKernels<float>().name, "");
  Floats y(5);
  BestKernels<float>().relu(Floats{-1, 2, -3, 4, 0}.data(), y.data(), 5);
  EXPECT_EQ(y, (Floats{0, 2, 0, 4, 0}));
}

}  // namespace
}  // namespace trainyard::engine::cpu
