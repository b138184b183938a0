// Compares embeddings on the device with plain loops.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

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

// Sums in f32, in the order that sequence.h promises: the very bits that the device must give.
Floats ExpectedGradient(const Tokens& tokens, const Floats& dy, int64_t vocabulary,
                        int64_t channels, const Floats& before) {
  constexpr size_t kChunk = 32;
  std::vector<size_t> sorted(tokens.size());
  std::iota(sorted.begin(), sorted.end(), size_t{0});
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](size_t a, size_t b) { return tokens[a] < tokens[b]; });
  const auto width = static_cast<size_t>(channels);
  Floats sums(static_cast<size_t>(vocabulary) * width);
  for (size_t c = 0; c < width; ++c) {
    float part = 0;
    for (size_t i = 0; i < sorted.size(); ++i) {
      part += dy[sorted[i] * width + c];
      const int32_t token = tokens[sorted[i]];
      if (i + 1 == sorted.size() || (i + 1) % kChunk == 0 || tokens[sorted[i + 1]] != token) {
        sums[static_cast<size_t>(token) * width + c] += part;
        part = 0;
      }
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
  const DeviceArray<uint8_t> workspace(
      std::vector<uint8_t>(static_cast<size_t>(EmbeddingGradientWorkspace(count, channels)), 0xA5));
  EXPECT_EQ(EmbeddingGradient(of_tokens.data(), of_dy.view(), dweight.data(), !before.empty(),
                              count, vocabulary, channels, workspace.data(), nullptr),
            cudaSuccess);
  return dweight.Read();
}

TEST(EmbeddingGradient, SumsRowsInAFixedOrder) {
  for (const Type type : kTypes) {
    // Channels of one thread, that do not fill a vector, and of more threads than a block has.
    for (const int64_t channels : {8, 13, 1100}) {
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

TEST(EmbeddingGradient, TakesRunsThatEndBeforeOnAndBehindTheBordersOfChunks) {
  for (const int64_t first : {1, 31, 32, 33, 63, 64, 65, 160, 161}) {
    for (const int64_t second : {0, 1, 31, 32, 33, 64}) {
      SCOPED_TRACE(std::to_string(first) + " " + std::to_string(second));
      Tokens tokens(static_cast<size_t>(first), 1);
      tokens.insert(tokens.end(), static_cast<size_t>(second), 2);
      const Floats dy = RandomFloats(14, (first + second) * 4);
      EXPECT_EQ(RunGradient(tokens, Type::kF32, dy, 4, 4, {}),
                ExpectedGradient(tokens, dy, 4, 4, {}));
    }
  }
}

TEST(EmbeddingGradient, TakesTokensThatAreMostOfTheBatchInAnyOrderOfThreads) {
  // The short case is sorted by one block, and the long one by several.
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

TEST(EmbeddingGradient, TakesVocabulariesOfOneTokenAndOfSeveralDigits) {
  for (const int64_t vocabulary : {1, 2, 256, 257, 5000, 70000}) {
    SCOPED_TRACE(vocabulary);
    const Tokens tokens = RandomNumbers(8, 500, static_cast<int32_t>(vocabulary));
    const Floats dy = RandomFloats(9, int64_t{500} * 4);
    EXPECT_EQ(RunGradient(tokens, Type::kF32, dy, vocabulary, 4, {}),
              ExpectedGradient(tokens, dy, vocabulary, 4, {}));
  }
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
