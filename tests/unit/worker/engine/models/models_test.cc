#include "worker/engine/models/models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

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

int64_t ParameterCount(const Graph& model) {
  int64_t count = 0;
  for (const Value& value : model.values) {
    if (value.role == Role::kParameter) count += ElementCount(value.shape);
  }
  return count;
}

int64_t ResnetParameters(const ResnetSpec& spec) {
  const absl::StatusOr<Graph> graph = BuildResnet(spec);
  EXPECT_TRUE(graph.ok()) << graph.status();
  return graph.ok() ? ParameterCount(*graph) : 0;
}

// These are the counts that torchvision publishes with its weights.
TEST(Models, ResnetsHaveThePublishedNumbersOfParameters) {
  const Shape image = {3, 224, 224};
  EXPECT_EQ(ResnetParameters({.input = image, .depth = 18}), 11'689'512);
  EXPECT_EQ(ResnetParameters({.input = image, .depth = 34}), 21'797'672);
  EXPECT_EQ(ResnetParameters({.input = image, .depth = 50}), 25'557'032);
  EXPECT_EQ(ResnetParameters({.input = image, .depth = 101}), 44'549'160);
}

// 0.27, 0.46, 0.66, 0.85 and 1.7 million in He et al. 2015, table 6, whose shortcuts have no
// parameters; ours have two convolutions and their norms: 2,752.
TEST(Models, CifarResnetsHaveThePublishedNumbersOfParameters) {
  const auto count = [](int64_t depth, int64_t classes = 10) {
    return ResnetParameters(
        {.input = {3, 32, 32}, .depth = depth, .stem = Stem::kCifar, .classes = classes});
  };
  EXPECT_EQ(count(20), 269'722 + 2'752);
  EXPECT_EQ(count(32), 464'154 + 2'752);
  EXPECT_EQ(count(44), 658'586 + 2'752);
  EXPECT_EQ(count(56), 853'018 + 2'752);
  EXPECT_EQ(count(110), 1'727'962 + 2'752);
  EXPECT_EQ(count(18), 11'173'962);
}

TEST(Models, WideResnetsHaveThePublishedNumbersOfParameters) {
  const auto count = [](int64_t depth, int64_t width) {
    const auto graph = BuildWideResnet({.input = {3, 32, 32}, .depth = depth, .width = width});
    EXPECT_TRUE(graph.ok()) << graph.status();
    return graph.ok() ? ParameterCount(*graph) : 0;
  };
  EXPECT_EQ(count(28, 10), 36'479'194);  // "36.5M" in the paper's table 4
  EXPECT_EQ(count(16, 4), 2'748'890);
  EXPECT_EQ(count(40, 2), 2'243'546);  // "2.2M"
}

TEST(Models, NetworksForImagesHaveThePublishedNumbersOfParameters) {
  const Shape image = {3, 224, 224};
  const auto count = [](const absl::StatusOr<Graph>& graph) {
    EXPECT_TRUE(graph.ok()) << graph.status();
    return graph.ok() ? ParameterCount(*graph) : 0;
  };
  EXPECT_EQ(count(BuildAlexnet({.input = image})), 61'100'840);
  EXPECT_EQ(count(BuildVgg({.input = image, .depth = 11})), 132'863'336);
  EXPECT_EQ(count(BuildVgg({.input = image, .depth = 13})), 133'047'848);
  EXPECT_EQ(count(BuildVgg({.input = image, .depth = 16})), 138'357'544);
  EXPECT_EQ(count(BuildVgg({.input = image, .depth = 19})), 143'667'240);
  EXPECT_EQ(count(BuildVgg({.input = image, .depth = 16, .batch_norm = true})), 138'365'992);
  EXPECT_EQ(count(BuildGooglenet({.input = image})), 6'624'904);
  EXPECT_EQ(count(BuildGooglenet({.input = {3, 32, 32}, .stem = Stem::kCifar, .classes = 10})),
            6'166'250);
}

TEST(Models, NetworksForImagesHaveTheNamesOfTorchvision) {
  const Shape image = {3, 64, 64};
  const auto names = [](const Graph& graph) {
    std::vector<std::string> found;
    for (const Value& value : graph.values) {
      if (value.role == Role::kParameter || value.role == Role::kBuffer) {
        found.push_back(value.name + ShapeString(value.shape));
      }
    }
    return found;
  };
  EXPECT_THAT(
      names(*BuildAlexnet({.input = {3, 224, 224}})),
      ::testing::IsSupersetOf({"features.0.weight[64, 3, 11, 11]", "features.10.bias[256]",
                               "classifier.1.weight[4096, 9216]", "classifier.4.weight[4096, 4096]",
                               "classifier.6.bias[1000]"}));
  EXPECT_THAT(names(*BuildVgg({.input = image, .depth = 11})),
              ::testing::IsSupersetOf(
                  {"features.0.weight[64, 3, 3, 3]", "features.18.weight[512, 512, 3, 3]",
                   "classifier.0.weight[4096, 2048]", "classifier.3.weight[4096, 4096]",
                   "classifier.6.bias[1000]"}));
  EXPECT_THAT(
      names(*BuildVgg({.input = image, .depth = 16, .batch_norm = true})),
      ::testing::IsSupersetOf({"features.1.running_mean[64]", "features.40.weight[512, 512, 3, 3]",
                               "features.41.running_var[512]"}));
  EXPECT_THAT(names(*BuildGooglenet({.input = image})),
              ::testing::IsSupersetOf({"conv1.conv.weight[64, 3, 7, 7]", "conv3.bn.weight[192]",
                                       "inception3a.branch1.conv.weight[64, 192, 1, 1]",
                                       "inception4e.branch3.1.conv.weight[128, 32, 3, 3]",
                                       "inception5b.branch4.1.bn.running_var[128]",
                                       "fc.weight[1000, 1024]"}));
  EXPECT_THAT(
      names(*BuildGooglenet({.input = {3, 32, 32}, .stem = Stem::kCifar, .classes = 10})),
      ::testing::IsSupersetOf({"pre_layers.0.bias[192]", "pre_layers.1.weight[192]",
                               "a3.b2.3.weight[128, 96, 3, 3]", "b5.b3.6.weight[128, 128, 3, 3]",
                               "e4.b4.2.running_mean[128]", "linear.weight[10, 1024]"}));
}

TEST(Models, TheResnetHasTheNamesOfTorchvision) {
  const auto resnet = BuildResnet({.input = {3, 32, 32}, .depth = 50, .classes = 7});
  ASSERT_TRUE(resnet.ok()) << resnet.status();
  EXPECT_THAT(
      StateNames(*resnet),
      ::testing::IsSupersetOf(
          {"conv1.weight[64, 3, 7, 7]", "bn1.running_mean[64]",
           "layer1.0.conv1.weight[64, 64, 1, 1]", "layer1.0.bn3.weight[256]",
           "layer1.0.downsample.0.weight[256, 64, 1, 1]", "layer1.0.downsample.1.running_var[256]",
           "layer2.0.conv2.weight[128, 128, 3, 3]", "layer4.2.conv3.weight[2048, 512, 1, 1]",
           "fc.weight[7, 2048]", "fc.bias[7]"}));
}

TEST(Models, TheResidualBranchMayStartAtZero) {
  const Graph graph =
      *BuildResnet({.input = {3, 32, 32}, .depth = 18, .classes = 4, .zero_init_residual = true});
  const std::unique_ptr<Executable> executable = testing::Compile("cpu", graph, {}, {});
  ASSERT_TRUE(InitializeParameters(1, *executable).ok());
  EXPECT_EQ(testing::ReadState(*executable, "layer1.0.bn2.weight"), testing::Values(64, 0.0f));
  EXPECT_EQ(testing::ReadState(*executable, "layer1.0.bn1.weight"), testing::Values(64, 1.0f));
  EXPECT_EQ(testing::ReadState(*executable, "layer2.0.downsample.1.weight"),
            testing::Values(128, 1.0f));
}

// A step of both backends from the same state.
struct EqualSteps {
  std::unique_ptr<Executable> reference, cpu;

  EqualSteps(const Graph& graph, int64_t rows, uint64_t batch_seed)
      : reference(testing::Compile("reference", graph, {.momentum = 0.9}, {.max_rows = rows})),
        cpu(testing::Compile("cpu", graph, {.momentum = 0.9}, {.max_rows = rows})) {
    EXPECT_TRUE(InitializeParameters(3, *reference).ok());
    testing::CopyState(*reference, *cpu);
    const testing::TestBatch batch = testing::RandomBatch(batch_seed, graph, rows);
    for (Executable* executable : {reference.get(), cpu.get()}) {
      EXPECT_TRUE(executable->Accumulate(batch.batch(), 1, {}).ok());
    }
  }
};

// Both backends must train the models alike for a step. Batch norms over few values magnify
// rounding, so if the last maps are small, there must be more rows.
void ExpectEqualSteps(const Graph& graph, int64_t rows = 3) {
  constexpr double kTolerance = 2e-3;
  constexpr uint64_t kFirstBatch = 5, kLastBatch = 36;
  // Rounding carries a value across the kink of a relu now and then, and the gradients behind it
  // are then others. With a batch that has no such value they agree; wrong ones would never do.
  for (uint64_t seed = kFirstBatch; seed <= kLastBatch; ++seed) {
    const EqualSteps steps(graph, rows, seed);
    const testing::NamedValues got = testing::Gradients(graph, *steps.cpu);
    const testing::NamedValues wanted = testing::Gradients(graph, *steps.reference);
    if (seed < kLastBatch && testing::LargestError(got, wanted) > kTolerance) continue;
    testing::ExpectNear(got, wanted, kTolerance);
    const auto expected = steps.reference->Update(0.01);
    const auto updated = steps.cpu->Update(0.01);
    ASSERT_TRUE(expected.ok() && updated.ok());
    EXPECT_NEAR(updated->loss, expected->loss, 1e-4);
    EXPECT_NEAR(updated->loss, std::log(4), 2) << "the start is far from even odds";
    return;
  }
}

TEST(Models, BothBackendsTrainResidualNetworksAlike) {
  ExpectEqualSteps(*BuildResnet({.input = {3, 40, 40}, .depth = 18, .classes = 4}));
  ExpectEqualSteps(
      *BuildResnet({.input = {3, 12, 12}, .depth = 20, .stem = Stem::kCifar, .classes = 4}));
  ExpectEqualSteps(
      *BuildResnet({.input = {3, 9, 9}, .depth = 50, .stem = Stem::kCifar, .classes = 4}));
  ExpectEqualSteps(*BuildWideResnet({.input = {3, 12, 12}, .depth = 10, .width = 2, .classes = 4}));
}

TEST(Models, BothBackendsTrainNetworksForImagesAlike) {
  ExpectEqualSteps(*BuildGooglenet({.input = {3, 35, 35}, .classes = 4}));
  ExpectEqualSteps(
      *BuildGooglenet({.input = {3, 8, 8}, .stem = Stem::kCifar, .classes = 4, .dropout = 0}), 12);
}

TEST(Models, SayWhatIsWrongWithASpec) {
  EXPECT_THAT(std::string(BuildVgg({.input = {3, 32, 32}, .depth = 12}).status().message()),
              AllOf(HasSubstr("depth 12"), HasSubstr("11, 13, 16 or 19")));
  EXPECT_THAT(std::string(BuildAlexnet({.input = {3, 32, 32}}).status().message()),
              HasSubstr("max_pool"));
  EXPECT_THAT(std::string(BuildResnet({.input = {3, 32, 32}, .depth = 19}).status().message()),
              AllOf(HasSubstr("depth 19"), HasSubstr("18, 34, 50, 101")));
  EXPECT_THAT(std::string(BuildResnet({.input = {3, 32, 32}, .depth = 20}).status().message()),
              HasSubstr("expected stem: cifar"));
  EXPECT_THAT(std::string(BuildWideResnet({.input = {3, 32, 32}, .depth = 18}).status().message()),
              AllOf(HasSubstr("depth 18"), HasSubstr("6 n + 4")));
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
