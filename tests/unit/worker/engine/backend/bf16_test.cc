// Tests what a step in bf16 promises besides its numbers: less memory, and a clear refusal if it is
// not possible.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/unit/worker/engine/bf16_testing.h"
#include "tests/unit/worker/engine/engine_testing.h"
#include "worker/engine/graph/graph_builder.h"
#include "worker/engine/make_backend.h"
#include "worker/engine/models/models.h"

namespace trainyard::engine {
namespace {

using ::testing::HasSubstr;

CompileOptions Options(Precision precision, int64_t rows) {
  return {.max_rows = rows, .precision = precision};
}

Graph Resnet20() {
  return *BuildResnet({.input = {3, 32, 32}, .depth = 20, .stem = Stem::kCifar, .classes = 10});
}

TEST(Bf16, HalvesTheActivations) {
  if (!testing::Has(Precision::kBf16)) {
    GTEST_SKIP() << "this machine has no AVX512_BF16";
  }
  const Graph models[] = {Resnet20(), *BuildConvnet({.input = {1, 28, 28}})};
  for (const Graph& model : models) {
    const auto f32 = testing::Compile("cpu", model, {}, Options(Precision::kF32, 64));
    const auto bf16 = testing::Compile("cpu", model, {}, Options(Precision::kBf16, 64));
    EXPECT_LT(static_cast<double>(bf16->memory_plan().activations),
              0.55 * static_cast<double>(f32->memory_plan().activations));
    EXPECT_EQ(bf16->memory_plan().parameters, f32->memory_plan().parameters);
    EXPECT_EQ(bf16->memory_plan().gradients, f32->memory_plan().gradients);
    EXPECT_EQ(bf16->memory_plan().optimizer, f32->memory_plan().optimizer);
  }
}

TEST(Bf16, TakesTheMemoryOfItsPlan) {
  if (!testing::Has(Precision::kBf16)) {
    GTEST_SKIP() << "this machine has no AVX512_BF16";
  }
  const Graph model = Resnet20();
  const int64_t before = LiveBufferBytes();
  const auto executable =
      testing::Compile("cpu", model, {.momentum = 0.9}, Options(Precision::kBf16, 5));
  EXPECT_EQ(LiveBufferBytes() - before, executable->memory_plan().buffers());
  ASSERT_TRUE(InitializeParameters(1, *executable).ok());
  for (int64_t rows = 5; rows >= 3; --rows) {
    const testing::TestBatch batch = testing::RandomBatch(1, model, rows);
    ASSERT_TRUE(executable->Accumulate(batch.batch(), 1, nullptr).ok());
    ASSERT_TRUE(executable->Update(0.1).ok());
    ASSERT_TRUE(executable->Evaluate(batch.batch()).ok());
    EXPECT_EQ(LiveBufferBytes() - before, executable->memory_plan().buffers());
  }
}

// The parameters are floats, so an update far below the 8 bits of bf16 is not lost.
TEST(Bf16, KeepsSmallUpdates) {
  if (!testing::Has(Precision::kBf16)) {
    GTEST_SKIP() << "this machine has no AVX512_BF16";
  }
  const Graph model = *BuildMlp({.input = {8}, .hidden = {4}});
  const auto executable = testing::Compile("cpu", model, {}, Options(Precision::kBf16, 3));
  testing::RandomizeState(1, *executable);
  const testing::Values before = testing::ReadState(*executable, "fc2.weight");
  const testing::TestBatch batch = testing::RandomBatch(1, model, 3);
  ASSERT_TRUE(executable->Accumulate(batch.batch(), 1, nullptr).ok());
  const testing::Values gradient = testing::Gradients(model, *executable).at("fc2.weight");
  ASSERT_TRUE(executable->Update(1e-5).ok());
  const testing::Values after = testing::ReadState(*executable, "fc2.weight");
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(after[i], before[i] - 1e-5f * gradient[i]) << i;
  }
}

TEST(Bf16, TellsThatTheLossIsNotFinite) {
  if (!testing::Has(Precision::kBf16)) {
    GTEST_SKIP() << "this machine has no AVX512_BF16";
  }
  const Graph model = *BuildConvnet({.input = {1, 8, 8}, .batch_norm = true});
  const auto executable = testing::Compile("cpu", model, {}, Options(Precision::kBf16, 3));
  testing::RandomizeState(1, *executable);
  testing::TestBatch batch = testing::RandomBatch(1, model, 3);
  batch.inputs[5] = std::numeric_limits<float>::quiet_NaN();
  ASSERT_TRUE(executable->Accumulate(batch.batch(), 1, nullptr).ok());
  EXPECT_TRUE(std::isnan(executable->Update(0.1)->loss));
}

// Overlapping windows and unpacked heads have scratch memory for each thread.
TEST(Bf16, DoesNotDependOnTheThreads) {
  if (!testing::Has(Precision::kBf16)) {
    GTEST_SKIP() << "this machine has no AVX512_BF16";
  }
  GraphBuilder images({3, 9, 9});
  const PoolOptions windows = {.kernel = 3, .stride = 1, .padding = 1};
  const ValueId x =
      images.MaxPool(images.Conv2d("conv", images.input(), {.channels = 20}), windows);
  images.SoftmaxCrossEntropy(images.Linear("fc", images.Flatten(images.AvgPool(x, windows)), 7));
  GraphBuilder tokens = GraphBuilder::ForTokens(70, 11);
  const ValueId y = tokens.Linear("qkv", tokens.Embedding("tok", tokens.input(), 16), 48);
  tokens.SoftmaxCrossEntropy(tokens.Linear("head", tokens.Attention(y, 4), 11));
  for (const Graph& model : {*std::move(images).Build(), *std::move(tokens).Build()}) {
    CompileOptions options = Options(Precision::kBf16, 5);
    options.inspect = true;
    const auto one = testing::Compile("cpu", model, {}, options);
    options.threads = 3;
    const auto three = testing::Compile("cpu", model, {}, options);
    testing::RandomizeState(1, *one);
    testing::CopyState(*one, *three);
    const testing::TestBatch batch = testing::RandomBatch(1, model, 5);
    ASSERT_TRUE(one->Accumulate(batch.batch(), 1, nullptr).ok());
    ASSERT_TRUE(three->Accumulate(batch.batch(), 1, nullptr).ok());
    // Threads may share sums of oneDNN, which are floats.
    testing::ExpectNear(testing::Gradients(model, *three), testing::Gradients(model, *one), 1e-5);
  }
}

TEST(Bf16, IsRefusedByTheReference) {
  const Graph model = *BuildMlp({.input = {8}});
  for (const char* backend : {"reference", "reference_f64"}) {
    const absl::Status status =
        (*MakeBackend(backend))->Compile(model, {}, Options(Precision::kBf16, 3)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr("precision bf16 needs another backend"));
  }
}

}  // namespace
}  // namespace trainyard::engine
