// Tests that layers which cuDNN refuses are computed all the same, and told, over the emulated
// cuDNN.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/cuda_on_cpu/cudnn/cudnn_on_cpu.h"
#include "tests/unit/worker/engine/engine_testing.h"
#include "worker/engine/backend/cuda/cuda_backend.h"
#include "worker/engine/graph/graph_builder.h"
#include "worker/engine/models/models.h"

namespace trainyard::engine {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Fallbacks : public ::testing::Test {
 protected:
  void TearDown() override {
    cuda_on_cpu::RefuseConvolutions({});
    cuda_on_cpu::RefuseAttention(false);
  }

  // Each has planners of its own, since they remember what was refused.
  static std::unique_ptr<Executable> Compiled(const Graph& model, const CompileOptions& options) {
    const std::unique_ptr<Backend> backend = *MakeCudaBackend({});
    auto compiled = backend->Compile(model, {}, options);
    EXPECT_TRUE(compiled.ok()) << compiled.status();
    return *std::move(compiled);
  }

  // Returns "layer op" of each.
  static std::vector<std::string> Layers(const std::vector<Fallback>& fallbacks) {
    std::vector<std::string> layers;
    layers.reserve(fallbacks.size());
    for (const Fallback& fallback : fallbacks) {
      layers.push_back(fallback.layer + " " + fallback.op);
    }
    return layers;
  }

  const Graph convnet_ = *BuildConvnet({.input = {3, 8, 8}, .channels = {8, 8}, .classes = 4});
  const CompileOptions options_ = {.max_rows = 8, .precision = Precision::kBf16};
};

TEST_F(Fallbacks, AreNoneWhereCudnnHasPlans) {
  const auto executable = Compiled(convnet_, options_);
  ASSERT_TRUE(executable->CompileRows({5, 8}, {3}).ok());
  EXPECT_THAT(executable->fallbacks(), IsEmpty());
  EXPECT_THAT((*MakeCudaBackend({}))->Plan(convnet_, {}, options_)->fallbacks, IsEmpty());
}

TEST_F(Fallbacks, AreToldOnceWithLayerAndReason) {
  cuda_on_cpu::RefuseConvolutions([](const cuda_on_cpu::ConvolutionShape& shape) {
    return shape.channels == 8 && shape.height == 8 &&
           shape.kind != cuda_on_cpu::ConvolutionShape::Kind::kInputGradient;
  });
  const auto executable = Compiled(convnet_, options_);
  ASSERT_TRUE(executable->CompileRows({5, 8}, {3}).ok());
  EXPECT_THAT(Layers(executable->fallbacks()),
              ElementsAre("conv1 conv2d", "conv1 conv2d_parameter_gradient"));
  EXPECT_THAT(executable->fallbacks(), Each(Field(&Fallback::reason, HasSubstr("n8 c8"))));
  EXPECT_THAT(FallbackText(executable->fallbacks().front()), HasSubstr("conv1 conv2d: "));
  const CompilePlan plan = *(*MakeCudaBackend({}))->Plan(convnet_, {}, options_);
  EXPECT_THAT(Layers(plan.fallbacks),
              ElementsAre("conv1 conv2d", "conv1 conv2d_parameter_gradient"));
}

TEST_F(Fallbacks, OfFewerRowsAreAdded) {
  const auto executable = Compiled(convnet_, options_);
  cuda_on_cpu::RefuseConvolutions(
      [](const cuda_on_cpu::ConvolutionShape& shape) { return shape.rows == 5; });
  ASSERT_TRUE(executable->CompileRows({5, 8}, {}).ok());
  EXPECT_FALSE(executable->fallbacks().empty());
}

TEST_F(Fallbacks, GroupsOfOddChannelsSayWhatCudnnTakes) {
  GraphBuilder builder({6, 4, 4});
  builder.SoftmaxCrossEntropy(
      builder.Linear("fc",
                     builder.Flatten(builder.Conv2d("grouped", builder.input(),
                                                    {.channels = 9, .kernel = 3, .groups = 3})),
                     4));
  const Graph model = *std::move(builder).Build();
  EXPECT_THAT(Compiled(model, options_)->fallbacks(),
              Each(AllOf(Field(&Fallback::layer, "grouped"),
                         Field(&Fallback::reason, HasSubstr("multiples of 8")))));
}

TEST_F(Fallbacks, AttentionSaysWhereCudnnIsRight) {
  const Graph gpt2 =
      *BuildGpt2({.layers = 1, .heads = 2, .width = 16, .context = 128, .vocabulary = 32});
  EXPECT_THAT(Compiled(gpt2, {.max_rows = 2, .precision = Precision::kBf16})->fallbacks(),
              IsEmpty());
  const std::vector<Fallback> of_f32 = Compiled(gpt2, {.max_rows = 2})->fallbacks();
  ASSERT_EQ(of_f32.size(), 1U);
  EXPECT_EQ(of_f32[0].op, "attention");
  EXPECT_THAT(of_f32[0].reason, HasSubstr("16 bits"));
  cuda_on_cpu::RefuseAttention(true);
  EXPECT_THAT(Compiled(gpt2, {.max_rows = 2, .precision = Precision::kBf16})->fallbacks(),
              Each(Field(&Fallback::reason, HasSubstr("cuDNN has no plan"))));
}

}  // namespace
}  // namespace trainyard::engine
