// Compares embeddings on the device with plain loops.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/worker/engine/backend/cuda/matrices.h"
#include "worker/engine/backend/cuda/kernels/sequence.h"

namespace trainyard::engine::cuda {
namespace {

using testing::DeviceMatrix;
using testing::ExpectNear;
using testing::Floats;
using testing::kPadding;
using testing::kTypes;
using testing::NameOf;
using testing::RandomFloats;
using testing::RandomNumbers;
using testing::Rounded;
using testing::ShuffleDevice;
using testing::ToleranceOf;
using Tokens = std::vector<int32_t>;

std::vector<double> Doubles(const Floats& values) {
  return {values.begin(), values.end()};
}

TEST(ReadTokens, TakesThemFromFloats) {
  const DeviceArray<float> inputs(Floats{3, 0, 50256, 7});
  const DeviceArray<StepControl> control(std::vector<StepControl>{{.inputs = inputs.data()}});
  const DeviceArray<int32_t> tokens(4);
  ReadTokens(control.data(), tokens.data(), 4, nullptr);
  EXPECT_EQ(tokens.Read(), (Tokens{3, 0, 50256, 7}));
}

TEST(Embedding, CopiesRowsOfTheTable) {
  for (const Type type : kTypes) {
    for (const int64_t channels : {8, 13, 300}) {
      const Floats weight = RandomFloats(1, 50 * channels);
      const Tokens tokens = RandomNumbers(2, 77, 50);
      const DeviceArray<float> table(weight);
      const DeviceArray<int32_t> of_tokens(tokens);
      const DeviceMatrix y(type, 77, channels, channels + 11);
      EmbeddingForward(of_tokens.data(), table.data(), y.view(), 77, channels, nullptr);
      Floats expected;
      for (const int32_t token : tokens) {
        const auto row = weight.begin() + token * channels;
        expected.insert(expected.end(), row, row + channels);
      }
      EXPECT_EQ(y.Read(), Rounded(expected, type)) << NameOf(type) << " " << channels;
      const int64_t cleared = PaddedChannels(channels, type) - channels;
      const Floats padding = y.Padding();
      for (size_t i = 0; i < padding.size(); ++i) {
        ASSERT_EQ(padding[i], static_cast<int64_t>(i % 11) < cleared ? 0 : kPadding);
      }
    }
  }
}

// Sums in f32, in the order of the positions: the very bits that the device must give.
Floats ExpectedGradient(const Tokens& tokens, const Floats& dy, int64_t vocabulary,
                        int64_t channels, const Floats& before) {
  Floats sums(static_cast<size_t>(vocabulary * channels));
  for (size_t n = 0; n < tokens.size(); ++n) {
    for (int64_t c = 0; c < channels; ++c) {
      sums[static_cast<size_t>(tokens[n] * channels + c)] +=
          dy[n * static_cast<size_t>(channels) + static_cast<size_t>(c)];
    }
  }
  for (size_t i = 0; i < before.size(); ++i) {
    sums[i] += before[i];
  }
  return sums;
}

Floats RunGradient(const Tokens& tokens, Type type, const Floats& dy, int64_t vocabulary,
                   int64_t channels, const Floats& before) {
  const auto count = static_cast<int64_t>(tokens.size());
  const DeviceArray<int32_t> of_tokens(tokens);
  const DeviceMatrix of_dy(type, count, channels, channels + channels % 8, dy);
  const DeviceArray<float> dweight(
      before.empty() ? Floats(static_cast<size_t>(vocabulary * channels), kPadding) : before);
  // The caller does not clear the workspace.
  const DeviceArray<uint8_t> workspace(std::vector<uint8_t>(
      static_cast<size_t>(EmbeddingGradientWorkspace(count, vocabulary)), 0xA5));
  EmbeddingGradient(of_tokens.data(), of_dy.view(), dweight.data(), !before.empty(), count,
                    vocabulary, channels, workspace.data(), nullptr);
  return dweight.Read();
}

TEST(EmbeddingGradient, SumsRowsInTheOrderOfThePositions) {
  for (const Type type : kTypes) {
    // More channels than a block holds at once, and channels that do not fill a vector.
    for (const int64_t channels : {16, 13, 1100}) {
      SCOPED_TRACE(std::string(NameOf(type)) + " " + std::to_string(channels));
      const Tokens tokens = RandomNumbers(3, 150, 60);
      const Floats dy = Rounded(RandomFloats(4, 150 * channels), type);
      EXPECT_EQ(RunGradient(tokens, type, dy, 97, channels, {}),
                ExpectedGradient(tokens, dy, 97, channels, {}));
      const Floats before = RandomFloats(5, 97 * channels);
      EXPECT_EQ(RunGradient(tokens, type, dy, 97, channels, before),
                ExpectedGradient(tokens, dy, 97, channels, before));
    }
  }
}

TEST(EmbeddingGradient, TakesTokensThatAreMostOfTheBatchInAnyOrderOfThreads) {
  // Token 1 occurs more often than is sorted. So does the last token, but only at the end.
  Tokens tokens = RandomNumbers(6, 6000, 5);
  for (size_t i = 0; i < 4500; ++i) {
    tokens[i] = i % 3 == 0 ? tokens[i] : 1;
  }
  std::fill(tokens.end() - 1300, tokens.end(), 8);
  for (const int64_t channels : {8, 1030}) {
    const int64_t count = channels == 8 ? 6000 : 3000;
    const Tokens of_case(tokens.end() - count, tokens.end());
    const Floats dy = RandomFloats(7, count * channels);
    const Floats expected = ExpectedGradient(of_case, dy, 9, channels, {});
    for (uint64_t order = 0; order < 3; ++order) {
      ShuffleDevice(400 + order);
      EXPECT_EQ(RunGradient(of_case, Type::kF32, dy, 9, channels, {}), expected);
    }
  }
}

TEST(EmbeddingGradient, SpansAVocabularyOfManyRunsOfTheScan) {
  const Tokens tokens = RandomNumbers(8, 500, 5000);
  const Floats dy = RandomFloats(9, int64_t{500} * 4);
  EXPECT_EQ(RunGradient(tokens, Type::kF32, dy, 5000, 4, {}),
            ExpectedGradient(tokens, dy, 5000, 4, {}));
}

TEST(PositionEmbedding, AddsARowToEachPosition) {
  for (const Type type : kTypes) {
    for (const int64_t channels : {24, 13}) {
      const Floats x = Rounded(RandomFloats(10, 21 * channels), type);
      const Floats weight = RandomFloats(11, 9 * channels);
      const DeviceMatrix of_x(type, 21, channels, channels + 3, x);
      const DeviceMatrix y(type, 21, channels, channels);
      const DeviceArray<float> table(weight);
      PositionEmbeddingForward(of_x.view(), table.data(), y.view(), 3, 7, channels, nullptr);
      Floats expected;
      for (size_t i = 0; i < x.size(); ++i) {
        expected.push_back(x[i] + weight[i % static_cast<size_t>(7 * channels)]);
      }
      EXPECT_EQ(y.Read(), Rounded(expected, type)) << NameOf(type) << " " << channels;
    }
  }
}

TEST(PositionEmbeddingGradient, SumsOverRows) {
  for (const Type type : kTypes) {
    for (const int64_t channels : {24, 13}) {
      for (const bool adds : {false, true}) {
        const Floats dy = Rounded(RandomFloats(12, 42 * channels), type);
        const Floats before = RandomFloats(13, 9 * channels);
        const DeviceMatrix of_dy(type, 42, channels, channels + 3, dy);
        const DeviceArray<float> dweight(before);
        PositionEmbeddingGradient(of_dy.view(), dweight.data(), adds, 6, 7, 9, channels, nullptr);
        std::vector<double> expected = adds ? Doubles(before) : std::vector<double>(before.size());
        for (size_t i = 0; i < dy.size(); ++i) {
          expected[i % static_cast<size_t>(7 * channels)] += static_cast<double>(dy[i]);
        }
        ExpectNear(dweight.Read(), expected, 1e-6, NameOf(type));
      }
    }
  }
}

}  // namespace
}  // namespace trainyard::engine::cuda
