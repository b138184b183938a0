#include "worker/engine/models/models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/engine/engine_testing.h"

namespace trainyard::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> StateNames(const Graph& model) {
  std::vector<std::string> names;
  const std::unique_ptr<Executable> executable = testing::Compile("reference", model, {}, {});
  for (const StateTensor& tensor : executable->state()) {
    names.push_back(tensor.name + ShapeString(tensor.shape));
  }
  return names;
}

TEST(Models, TheMlpHasTorchNamesAndShapes) {
  const absl::StatusOr<Graph> mlp = BuildMlp({.input = {1, 28, 28}, .hidden = {128, 64}});
  ASSERT_TRUE(mlp.ok()) << mlp.status();
  EXPECT_THAT(StateNames(*mlp),
              ElementsAre("fc1.weight[128, 784]", "fc1.bias[128]", "fc2.weight[64, 128]",
                          "fc2.bias[64]", "fc3.weight[10, 64]", "fc3.bias[10]"));
}

TEST(Models, TheConvnetHasTorchNamesAndShapes) {
  const absl::StatusOr<Graph> convnet = BuildConvnet({.input = {1, 28, 28}});
  ASSERT_TRUE(convnet.ok()) << convnet.status();
  EXPECT_THAT(StateNames(*convnet), ElementsAre("conv1.weight[32, 1, 3, 3]", "conv1.bias[32]",
                                                "conv2.weight[64, 32, 3, 3]", "conv2.bias[64]",
                                                "fc.weight[10, 3136]", "fc.bias[10]"));
}

TEST(Models, TheConvnetWithBatchNormHasNoConvolutionBias) {
  const absl::StatusOr<Graph> convnet =
      BuildConvnet({.input = {3, 8, 8}, .channels = {4, 6}, .classes = 5, .batch_norm = true});
  ASSERT_TRUE(convnet.ok()) << convnet.status();
  EXPECT_THAT(StateNames(*convnet),
              ElementsAre("conv1.weight[4, 3, 3, 3]", "bn1.weight[4]", "bn1.bias[4]",
                          "conv2.weight[6, 4, 3, 3]", "bn2.weight[6]", "bn2.bias[6]",
                          "fc.weight[5, 24]", "fc.bias[5]", "bn1.running_mean[4]",
                          "bn1.running_var[4]", "bn2.running_mean[6]", "bn2.running_var[6]"));
}

TEST(Models, SayWhatIsWrongWithASpec) {
  EXPECT_THAT(std::string(BuildConvnet({.input = {1, 2, 2}}).status().message()),
              AllOf(HasSubstr("max_pool2"), HasSubstr("[64, 1, 1]")));
  EXPECT_THAT(std::string(BuildConvnet({.input = {784}}).status().message()),
              AllOf(HasSubstr("conv1"), HasSubstr("[784]")));
  EXPECT_THAT(std::string(BuildConvnet({.input = {1, 28, 28}, .channels = {8}}).status().message()),
              HasSubstr("expected two"));
  EXPECT_THAT(std::string(BuildMlp({.input = {4}, .hidden = {0}}).status().message()),
              HasSubstr("fc1"));
}

}  // namespace
}  // namespace trainyard::engine
