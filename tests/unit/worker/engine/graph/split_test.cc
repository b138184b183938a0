// Tests where models can be cut, what the stages hold, and the messages about impossible cuts.
#include "worker/engine/graph/split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/unit/worker/engine/engine_testing.h"
#include "worker/engine/graph/graph_builder.h"
#include "worker/engine/graph/render_dot.h"
#include "worker/engine/models/models.h"

namespace trainyard::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Layers(const Graph& model) {
  std::vector<std::string> layers;
  for (const CutPoint& cut : PossibleCuts(model)) layers.push_back(cut.layer);
  return layers;
}

std::vector<std::string> Parameters(const Graph& graph) {
  std::vector<std::string> names;
  for (const Value& value : graph.values) {
    if (value.role == Role::kParameter) names.push_back(value.name);
  }
  return names;
}

std::string MessageOf(const Graph& model, const std::vector<std::string>& cuts) {
  const absl::StatusOr<std::vector<Graph>> stages = SplitModel(model, cuts);
  EXPECT_EQ(stages.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(stages.status().message());
}

Graph Convnet() {
  return *BuildConvnet({.input = {2, 8, 8}, .channels = {4, 6}, .classes = 5});
}

TEST(Split, AChainIsCutBeforeEveryLayerButTheFirst) {
  EXPECT_THAT(Layers(Convnet()),
              ElementsAre("relu1", "max_pool1", "conv2", "relu2", "max_pool2", "fc", "loss"));
}

TEST(Split, AFlattenGoesWithTheLayerAfterIt) {
  for (const char* name : {"flatten1", "fc"}) {
    const auto stages = SplitModel(Convnet(), {name});
    ASSERT_TRUE(stages.ok()) << stages.status();
    EXPECT_EQ((*stages)[1].nodes[0].op, OpKind::kFlatten);
    EXPECT_EQ((*stages)[1].input_shape(), Shape({6, 2, 2}));
  }
}

TEST(Split, ResidualBlocksAreNotCutInside) {
  const Graph model =
      *BuildResnet({.input = {3, 8, 8}, .depth = 20, .stem = Stem::kCifar, .classes = 4});
  const std::vector<std::string> layers = Layers(model);
  const std::set<std::string> possible(layers.begin(), layers.end());
  EXPECT_TRUE(possible.contains("layer1.1.conv1"));
  EXPECT_TRUE(possible.contains("layer2.0.conv1"));
  EXPECT_FALSE(possible.contains("layer1.1.bn1"));
  EXPECT_FALSE(possible.contains("layer1.1.conv2"));
  EXPECT_THAT(MessageOf(model, {"layer1.1.conv2"}),
              HasSubstr("layer 'layer1.1.conv2': 2 values cross before it, and a stage takes "
                        "exactly one; the nearest possible cut is 'layer1.1.conv1' or"));
}

TEST(Split, InceptionModulesAreNotCutInside) {
  const Graph model = testing::Inceptions({4, 4, 4, 4});
  EXPECT_FALSE(PossibleCuts(model).empty());
  for (const CutPoint& cut : PossibleCuts(model)) {
    EXPECT_NE(model.nodes[cut.node].op, OpKind::kConcat) << cut.layer;
  }
}

TEST(Split, StagesHoldTheModelsParametersAndNoOthers) {
  const Graph model = Convnet();
  const auto stages = SplitModel(model, {"conv2", "fc"});
  ASSERT_TRUE(stages.ok()) << stages.status();
  ASSERT_EQ(stages->size(), 3u);
  EXPECT_THAT(Parameters((*stages)[0]), ElementsAre("conv1.weight", "conv1.bias"));
  EXPECT_THAT(Parameters((*stages)[1]), ElementsAre("conv2.weight", "conv2.bias"));
  EXPECT_THAT(Parameters((*stages)[2]), ElementsAre("fc.weight", "fc.bias"));
  const Graph& first = (*stages)[0];
  EXPECT_FALSE(first.has_stage_input);
  EXPECT_FALSE(first.has_loss());
  EXPECT_EQ(first.value(first.stage_output).shape, Shape({4, 4, 4}));
  const Graph& last = (*stages)[2];
  EXPECT_TRUE(last.has_stage_input);
  EXPECT_TRUE(last.has_loss());
  EXPECT_EQ(last.stage_output, kNoValue);
  EXPECT_EQ(last.input_shape(), Shape({6, 2, 2}));
  EXPECT_EQ(last.classes(), 5);
}

TEST(Split, WithoutCutsThereIsOneStageTheModelItself) {
  const Graph model = Convnet();
  const auto stages = SplitModel(model, {});
  ASSERT_TRUE(stages.ok()) << stages.status();
  ASSERT_EQ(stages->size(), 1u);
  EXPECT_EQ(RenderDot(BuildTrainingStep((*stages)[0], {}), 2),
            RenderDot(BuildTrainingStep(model, {}), 2));
}

TEST(Split, AStageTakesTheGradientOfItsInput) {
  const auto stages = SplitModel(Convnet(), {"relu1"});
  ASSERT_TRUE(stages.ok()) << stages.status();
  EXPECT_EQ(BuildTrainingStep((*stages)[0], {}).input_gradient, kNoValue);
  EXPECT_NE(BuildTrainingStep((*stages)[1], {}).input_gradient, kNoValue);
}

TEST(Split, NamesAnUnknownLayerAndThePossibleOnes) {
  EXPECT_THAT(MessageOf(Convnet(), {"conv9"}),
              HasSubstr("no layer 'conv9'; stages can begin with 'relu1' or 'max_pool1' or"));
}

TEST(Split, RefusesTheFirstLayerAndCutsOutOfOrder) {
  EXPECT_THAT(MessageOf(Convnet(), {"conv1"}),
              HasSubstr("layer 'conv1': the first stage begins with it; the nearest possible cut "
                        "is 'relu1'"));
  EXPECT_THAT(MessageOf(Convnet(), {"fc", "conv2"}),
              HasSubstr("layer 'conv2' does not come after 'fc'"));
  EXPECT_THAT(MessageOf(Convnet(), {"fc", "fc"}), HasSubstr("layer 'fc' does not come after 'fc'"));
}

TEST(Split, RefusesToPartLayersThatShareAParameter) {
  const Graph model =
      *BuildGpt2({.layers = 2, .heads = 2, .width = 8, .context = 4, .vocabulary = 11});
  // The embedding at the beginning has the same weights as the head at the end.
  EXPECT_THAT(Layers(model), ElementsAre("loss"));
  EXPECT_THAT(MessageOf(model, {"transformer.h.1.ln_1"}),
              HasSubstr("share the parameter 'transformer.wte.weight', which one stage must hold"));
}

}  // namespace
}  // namespace trainyard::engine
