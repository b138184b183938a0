// Tests that every instruction set of this machine gives the bits of the baseline, so that ranks on
// different machines make the same update.
#include "worker/engine/backend/cpu/update_kernels.h"

#include <gtest/gtest.h>

#include "tests/unit/worker/engine/engine_testing.h"
#include "worker/engine/backend/cpu/kernels.h"

namespace trainyard::engine::cpu {
namespace {

using testing::RandomValues;
using Floats = std::vector<float>;

std::vector<const UpdateKernels*> RunnableKernels() {
  std::vector<const UpdateKernels*> sets;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    sets.push_back(&kAvx2UpdateKernels);
  }
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    sets.push_back(&kAvx512UpdateKernels);
  }
  return sets;
}

struct Results {
  std::vector<Floats> floats;
  std::vector<double> sums;

  friend bool operator==(const Results&, const Results&) = default;
};

Results RunAll(const UpdateKernels& kernels) {
  constexpr int64_t kCount = 1003;  // fills no vector
  Results results;
  for (const bool nesterov : {false, true}) {
    for (const bool has_slots : {false, true}) {
      const UpdateRule rule = {.lr = 0.037f,
                               .momentum = 0.9f,
                               .weight_decay = 0.013f,
                               .beta1 = 0.9f,
                               .rest1 = 0.1f,
                               .beta2 = 0.999f,
                               .rest2 = 0.001f,
                               .eps = 1e-6f,
                               .first_correction = 1.7f,
                               .second_correction = 33.3f,
                               .gradient_scale = 0.71f,
                               .nesterov = nesterov};
      // 0: sgd, 1: lars, 2: adamw, 3: adam, 4: lamb
      for (int which = 0; which < (has_slots ? 5 : 2); ++which) {
        Floats parameter = RandomValues(1, kCount);
        Floats gradient = RandomValues(2, kCount);
        Floats first = RandomValues(3, kCount);
        Floats second = RandomValues(4, kCount);
        for (float& value : second) {
          value *= value;
        }
        const UpdateBlock block = {kCount, parameter.data(), gradient.data(),
                                   has_slots ? first.data() : nullptr, second.data()};
        double squares[2] = {};
        bool is_finite = true;
        switch (which) {
          case 0:
            is_finite = kernels.sgd(rule, block);
            break;
          case 1:
            is_finite = kernels.lars(rule, block);
            break;
          case 2:
            is_finite = kernels.adamw(rule, block);
            break;
          case 3:
            is_finite = kernels.adam(rule, block);
            break;
          default:
            is_finite = kernels.lamb_moments(rule, block, &squares[0], &squares[1]);
            kernels.lamb(rule, block);
        }
        EXPECT_TRUE(is_finite);
        EXPECT_EQ(gradient, Floats(kCount, 0.0f));
        results.floats.insert(results.floats.end(), {parameter, first, second});
        results.sums.insert(results.sums.end(), {squares[0], squares[1]});
      }
    }
  }
  const Floats x = RandomValues(5, kCount);
  Floats average = RandomValues(6, kCount);
  kernels.fold_average(0.93f, 0.07f, x.data(), average.data(), kCount);
  results.floats.push_back(average);
  for (const int64_t count : {int64_t{0}, int64_t{5}, int64_t{16}, kCount}) {
    results.sums.push_back(kernels.square_sum(x.data(), count));
  }
  return results;
}

TEST(UpdateKernels, OfEveryInstructionSetGiveTheBitsOfTheBaseline) {
  const Results expected = RunAll(kBaselineUpdateKernels);
  for (const UpdateKernels* kernels : RunnableKernels()) {
    EXPECT_TRUE(RunAll(*kernels) == expected) << kernels->name;
  }
}

TEST(UpdateKernels, AreOfTheSetThatTheOtherKernelsAreOf) {
  EXPECT_STREQ(BestUpdateKernels().name, BestKernels<float>().name);
}

TEST(UpdateKernels, TellOfGradientsThatAreNotFinite) {
  for (const UpdateKernels* kernels : {&kBaselineUpdateKernels, &BestUpdateKernels()}) {
    for (const float spoiled : {__builtin_nanf(""), __builtin_inff(), -__builtin_inff()}) {
      Floats values[4];
      const auto block = [&] {
        for (Floats& memory : values) {
          memory.assign(37, 1.0f);
        }
        values[1][36] = spoiled;
        return UpdateBlock{37, values[0].data(), values[1].data(), values[2].data(),
                           values[3].data()};
      };
      double sums[2];
      const UpdateRule rule = {};
      EXPECT_FALSE(kernels->sgd(rule, block()));
      EXPECT_FALSE(kernels->lars(rule, block()));
      EXPECT_FALSE(kernels->adamw(rule, block()));
      EXPECT_FALSE(kernels->adam(rule, block()));
      EXPECT_FALSE(kernels->lamb_moments(rule, block(), &sums[0], &sums[1]));
    }
  }
}

}  // namespace
}  // namespace trainyard::engine::cpu
