#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/unit/worker/engine/engine_testing.h"
#include "worker/engine/graph/philox.h"
#include "worker/engine/models/models.h"

namespace trainyard::engine {
namespace {

using testing::Compile;
using testing::Values;

TEST(Philox, GivesTheKnownAnswersOfItsAuthors) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(Philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

Graph Model() {
  return *BuildConvnet({.input = {3, 16, 16}, .channels = {16, 24}, .batch_norm = true});
}

TEST(InitializeParameters, DrawsWeightsFromTheUniformOfTorch) {
  const std::unique_ptr<Executable> executable = Compile("reference", Model(), {}, {});
  ASSERT_TRUE(InitializeParameters(1, *executable).ok());
  const Values weight = testing::ReadState(*executable, "conv2.weight");
  const double bound = 1 / std::sqrt(16.0 * 9);
  double sum = 0;
  double squares = 0;
  for (const float value : weight) {
    EXPECT_LT(std::abs(value), bound);
    sum += value;
    squares += static_cast<double>(value) * value;
  }
  const double count = static_cast<double>(weight.size());
  EXPECT_NEAR(sum / count, 0, bound * 0.05);
  EXPECT_NEAR(squares / count, bound * bound / 3, bound * bound * 0.03);
  EXPECT_GT(*std::max_element(weight.begin(), weight.end()), bound * 0.99);
  for (const float value : testing::ReadState(*executable, "fc.bias")) {
    EXPECT_LT(std::abs(value), 1 / std::sqrt(24.0 * 16));
    EXPECT_NE(value, 0);
  }
}

TEST(InitializeParameters, StartsBatchNormAtIdentity) {
  const std::unique_ptr<Executable> executable = Compile("cpu", Model(), {.momentum = 0.9}, {});
  ASSERT_TRUE(InitializeParameters(1, *executable).ok());
  EXPECT_EQ(testing::ReadState(*executable, "bn1.weight"), Values(16, 1.0f));
  EXPECT_EQ(testing::ReadState(*executable, "bn1.bias"), Values(16, 0.0f));
  EXPECT_EQ(testing::ReadState(*executable, "bn2.running_mean"), Values(24, 0.0f));
  EXPECT_EQ(testing::ReadState(*executable, "bn2.running_var"), Values(24, 1.0f));
  EXPECT_EQ(testing::ReadState(*executable, "momentum.bn1.weight"), Values(16, 0.0f));
}

TEST(InitializeParameters, IsTheSameOnEveryBackendAndDiffersByNameAndSeed) {
  const std::unique_ptr<Executable> a = Compile("reference", Model(), {}, {});
  const std::unique_ptr<Executable> b = Compile("cpu", Model(), {}, {});
  ASSERT_TRUE(InitializeParameters(5, *a).ok());
  ASSERT_TRUE(InitializeParameters(5, *b).ok());
  EXPECT_EQ(testing::ReadAllState(*a), testing::ReadAllState(*b));
  ASSERT_TRUE(InitializeParameters(6, *b).ok());
  EXPECT_NE(testing::ReadState(*a, "fc.weight"), testing::ReadState(*b, "fc.weight"));
  const Values fc = testing::ReadState(*a, "fc.weight");
  const Values conv = testing::ReadState(*a, "conv1.weight");
  EXPECT_NE(fc[0] / std::abs(fc[1]), conv[0] / std::abs(conv[1]));
}

TEST(InitializeParameters, DrawsConvolutionsOfResnetsFromTheNormalOfTorchvision) {
  const Graph model = *BuildWideResnet({.input = {3, 8, 8}, .depth = 10, .width = 4, .classes = 4});
  const std::unique_ptr<Executable> executable = Compile("reference", model, {}, {});
  ASSERT_TRUE(InitializeParameters(1, *executable).ok());
  const Values weight = testing::ReadState(*executable, "block2.layer.0.conv2.weight");
  const double stddev = std::sqrt(2.0 / (128 * 9));
  double sum = 0, squares = 0, fourth = 0;
  for (const float value : weight) {
    const double scaled = value / stddev;
    sum += scaled;
    squares += scaled * scaled;
    fourth += scaled * scaled * scaled * scaled;
  }
  const double count = static_cast<double>(weight.size());  // 147,456
  EXPECT_NEAR(sum / count, 0, 0.01);
  EXPECT_NEAR(squares / count, 1, 0.015);
  EXPECT_NEAR(fourth / count, 3, 0.15);
  for (const float value : testing::ReadState(*executable, "fc.bias")) {
    EXPECT_LT(std::abs(value), 1 / std::sqrt(256.0));
  }
}

// The stream is part of what makes a job repeatable: these values must never change.
TEST(InitializeParameters, KeepsItsStreamForEver) {
  const Graph model = *BuildMlp({.input = {4}, .hidden = {}, .classes = 2});
  const std::unique_ptr<Executable> executable = Compile("reference", model, {}, {});
  ASSERT_TRUE(InitializeParameters(42, *executable).ok());
  const Values weight = testing::ReadState(*executable, "fc1.weight");
  const Values expected = {-0.0826564, -0.388468, 0.430391,  -0.299242,
                           -0.318923,  -0.217077, -0.391267, 0.171872};
  testing::ExpectNear(weight, expected, 1e-6, "fc1.weight");
}

}  // namespace
}  // namespace trainyard::engine
