// Tests that cuDNN has a plan for every operation that the models need, on devices that are
// described to it. The library is the real one; no GPU takes part.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>

#include "common/base/files.h"
#include "tests/testing/paths.h"
#include "tests/testing/temp_dir.h"
#include "worker/engine/backend/cuda/dnn/node_problem.h"
#include "worker/engine/backend/cuda/dnn/planner.h"
#include "worker/engine/models/models.h"

namespace trainyard::engine::cuda::dnn {
namespace {

using ::testing::Combine;
using ::testing::TestParamInfo;
using ::testing::TestWithParam;
using ::testing::Values;

std::string Description(const std::string& device) {
  return *ReadFile(testing::SourcePath("tests/data/devices/" + device + ".json"));
}

std::unique_ptr<Planner> PlannerFor(const std::string& device, bool deterministic = false) {
  PlannerOptions options;
  options.deterministic = deterministic;
  absl::StatusOr<std::unique_ptr<Planner>> planner =
      Planner::ForDescription(Description(device), options);
  EXPECT_TRUE(planner.ok()) << planner.status();
  return planner.ok() ? *std::move(planner) : nullptr;
}

struct Case {
  const char* name;
  std::function<absl::StatusOr<Graph>()> build;
  int64_t rows;
  Type type = Type::kBf16;
  bool tf32 = false;
};

const std::map<std::string, Case>& Cases() {
  const auto cifar = [] { return Shape{3, 32, 32}; };
  const auto imagenet = [] { return Shape{3, 224, 224}; };
  const auto resnet18 = [=] {
    return BuildResnet({.input = cifar(), .depth = 18, .stem = Stem::kCifar, .classes = 10});
  };
  static const auto* cases = new std::map<std::string, Case>{
      {"convnet",
       {"convnet",
        [=] {
          return BuildConvnet({.input = {3, 32, 32}});
        },
        128}},
      {"alexnet", {"alexnet", [=] { return BuildAlexnet({.input = imagenet()}); }, 128}},
      {"vgg16", {"vgg16", [=] { return BuildVgg({.input = imagenet()}); }, 64}},
      {"googlenet_32",
       {"googlenet_32",
        [=] { return BuildGooglenet({.input = cifar(), .stem = Stem::kCifar, .classes = 10}); },
        128}},
      {"googlenet_224",
       {"googlenet_224", [=] { return BuildGooglenet({.input = imagenet()}); }, 64}},
      {"resnet18", {"resnet18", resnet18, 128}},
      {"resnet18_f16", {"resnet18_f16", resnet18, 128, Type::kF16}},
      {"resnet18_tf32", {"resnet18_tf32", resnet18, 128, Type::kF32, true}},
      {"resnet18_f32", {"resnet18_f32", resnet18, 128, Type::kF32}},
      {"resnet50",
       {"resnet50", [=] { return BuildResnet({.input = imagenet(), .depth = 50}); }, 64}},
      {"wide_resnet", {"wide_resnet", [=] { return BuildWideResnet({.input = cifar()}); }, 128}},
      {"gpt2", {"gpt2", [] { return BuildGpt2({}); }, 8}},
  };
  return *cases;
}

bool IsConv(OpKind op) {
  return op == OpKind::kConv2d || op == OpKind::kConv2dInputGradient ||
         op == OpKind::kConv2dParameterGradient;
}

class PlansOf : public TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(PlansOf, EveryNodeHasOneWithinItsWorkspace) {
  const auto& [model_name, device] = GetParam();
  const Case& c = Cases().at(model_name);
  const absl::StatusOr<Graph> model = c.build();
  ASSERT_TRUE(model.ok()) << model.status();
  const StepGraph step = BuildTrainingStep(*model, {});
  const std::unique_ptr<Planner> planner = PlannerFor(device);
  ASSERT_NE(planner, nullptr);
  // Many problems are alike, and a planner remembers them.
  std::map<std::string, absl::StatusOr<const Plan*>> plans;
  std::map<std::string, absl::StatusOr<const Plan*>> estimates;
  const auto find = [&](const auto& problem) {
    estimates.emplace(problem.Key(), planner->Find(problem, Effort::kEstimate));
    plans.emplace(problem.Key(), planner->Find(problem, Effort::kMeasure));
  };
  for (const Node& node : step.graph.nodes) {
    if (IsConv(node.op)) {
      find(ProblemOf(step, node, c.rows, c.type, c.tf32));
    } else if (node.op == OpKind::kAttention || node.op == OpKind::kAttentionGradient) {
      find(AttentionProblemOf(step, node, c.rows, c.type));
    }
  }
  EXPECT_GE(plans.size(), 2u) << "nothing was planned";
  for (const auto& [key, plan] : plans) {
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_LE((*plan)->facts().workspace_bytes, PlannerOptions().workspace_bytes_max) << key;
    const absl::StatusOr<const Plan*>& estimate = estimates.at(key);
    ASSERT_TRUE(estimate.ok()) << estimate.status();
    EXPECT_EQ((*estimate)->facts().engine, (*plan)->facts().engine) << key;
    EXPECT_EQ((*estimate)->facts().workspace_bytes, (*plan)->facts().workspace_bytes) << key;
  }
}

INSTANTIATE_TEST_SUITE_P(Cuda, PlansOf,
                         Combine(Values("convnet", "alexnet", "vgg16", "googlenet_32",
                                        "googlenet_224", "resnet18", "resnet18_f16",
                                        "resnet18_tf32", "resnet18_f32", "resnet50", "wide_resnet",
                                        "gpt2"),
                                 Values("h200", "a100")),
                         [](const TestParamInfo<PlansOf::ParamType>& of) {
                           return std::string(std::get<0>(of.param)) + "_" + std::get<1>(of.param);
                         });

ConvProblem Usual() {
  ConvProblem problem;
  problem.rows = 128;
  problem.channels = problem.out_channels = problem.x_stride = problem.y_stride = 64;
  problem.height = problem.width = problem.out_height = problem.out_width = 32;
  problem.kernel = 3;
  problem.padding = 1;
  return problem;
}

class Plans : public TestWithParam<const char*> {};

TEST_P(Plans, ExistForConvolutionsWithStatistics) {
  const std::unique_ptr<Planner> planner = PlannerFor(GetParam());
  for (const Type type : {Type::kBf16, Type::kF16}) {
    ConvProblem problem = Usual();
    problem.type = type;
    problem.statistics = true;
    EXPECT_TRUE(planner->Find(problem, Effort::kMeasure).ok())
        << planner->Find(problem, Effort::kMeasure).status();
  }
}

// The shapes in which ResNets have a batch norm between two convolutions. An A100 does without the
// sums where they need too much workspace.
TEST_P(Plans, ExistForConvolutionsWithBatchNormAroundThemInF16) {
  const std::unique_ptr<Planner> planner = PlannerFor(GetParam());
  struct Shape {
    int64_t channels, out_channels, size, kernel, stride;
  };
  for (const Shape& shape :
       {Shape{64, 64, 56, 3, 1}, Shape{64, 256, 56, 1, 1}, Shape{128, 128, 56, 3, 2},
        Shape{512, 512, 7, 3, 1}, Shape{16, 24, 8, 3, 1}}) {
    ConvProblem problem = Usual();
    problem.type = Type::kF16;
    problem.rows = shape.size == 8 ? 6 : 256;
    problem.channels = problem.x_stride = shape.channels;
    problem.out_channels = problem.y_stride = shape.out_channels;
    problem.kernel = shape.kernel;
    problem.padding = shape.kernel / 2;
    problem.stride = shape.stride;
    problem.height = problem.width = shape.size;
    problem.out_height = problem.out_width = (shape.size - 1) / shape.stride + 1;
    const auto status = [&](ConvProblem::Kind kind) {
      ConvProblem fused = problem;
      fused.kind = kind;
      fused.normalises = kind != ConvProblem::Kind::kInputGradient;
      fused.norm_sums = kind == ConvProblem::Kind::kInputGradient;
      fused.statistics = kind == ConvProblem::Kind::kForward;
      return planner->Find(fused, Effort::kMeasure).status();
    };
    EXPECT_TRUE(status(ConvProblem::Kind::kForward).ok()) << status(ConvProblem::Kind::kForward);
    EXPECT_TRUE(status(ConvProblem::Kind::kWeightGradient).ok())
        << status(ConvProblem::Kind::kWeightGradient);
    const absl::Status of_sums = status(ConvProblem::Kind::kInputGradient);
    const bool is_too_large = std::string(GetParam()) == "a100" && shape.stride == 2;
    EXPECT_EQ(of_sums.code(), is_too_large ? absl::StatusCode::kNotFound : absl::StatusCode::kOk)
        << of_sums;
  }
}

// In bf16 the gradients of weights must read what the norm has written.
TEST_P(Plans, ExistForNormalisedInputsInBf16OnlyForward) {
  const std::unique_ptr<Planner> planner = PlannerFor(GetParam());
  ConvProblem problem = Usual();
  problem.normalises = problem.statistics = true;
  EXPECT_TRUE(planner->Find(problem, Effort::kMeasure).ok())
      << planner->Find(problem, Effort::kMeasure).status();
  problem = Usual();
  problem.kind = ConvProblem::Kind::kWeightGradient;
  problem.normalises = true;
  EXPECT_EQ(planner->Find(problem, Effort::kMeasure).status().code(), absl::StatusCode::kNotFound);
  problem = Usual();
  problem.kind = ConvProblem::Kind::kInputGradient;
  problem.norm_sums = true;
  EXPECT_EQ(planner->Find(problem, Effort::kMeasure).status().code(), absl::StatusCode::kNotFound);
}

TEST_P(Plans, ExistForPartsOfWiderTensors) {
  const std::unique_ptr<Planner> planner = PlannerFor(GetParam());
  ConvProblem problem = Usual();
  problem.x_stride = 96;
  problem.y_stride = 192;
  for (const auto kind : {ConvProblem::Kind::kForward, ConvProblem::Kind::kInputGradient,
                          ConvProblem::Kind::kWeightGradient}) {
    problem.kind = kind;
    EXPECT_TRUE(planner->Find(problem, Effort::kMeasure).ok())
        << planner->Find(problem, Effort::kMeasure).status();
  }
}

TEST_P(Plans, ExistForGroupsAndDilation) {
  const std::unique_ptr<Planner> planner = PlannerFor(GetParam());
  for (const auto kind : {ConvProblem::Kind::kForward, ConvProblem::Kind::kInputGradient,
                          ConvProblem::Kind::kWeightGradient}) {
    ConvProblem grouped = Usual();
    grouped.kind = kind;
    grouped.groups = 4;
    EXPECT_TRUE(planner->Find(grouped, Effort::kMeasure).ok())
        << planner->Find(grouped, Effort::kMeasure).status();
    ConvProblem dilated = Usual();
    dilated.kind = kind;
    dilated.dilation = dilated.padding = 2;
    EXPECT_TRUE(planner->Find(dilated, Effort::kMeasure).ok())
        << planner->Find(dilated, Effort::kMeasure).status();
  }
}

TEST_P(Plans, ExistForWideWeightGradientsOfPackedTensors) {
  const std::unique_ptr<Planner> planner = PlannerFor(GetParam());
  ConvProblem problem = Usual();
  problem.kind = ConvProblem::Kind::kWeightGradient;
  problem.f32_gradient = true;
  EXPECT_TRUE(planner->Find(problem, Effort::kMeasure).ok())
      << planner->Find(problem, Effort::kMeasure).status();
  problem.groups = 4;
  EXPECT_EQ(planner->Find(problem, Effort::kMeasure).status().code(), absl::StatusCode::kNotFound);
}

TEST_P(Plans, ExistForDeterministicGradients) {
  const std::unique_ptr<Planner> planner = PlannerFor(GetParam(), /*deterministic=*/true);
  for (const auto kind : {ConvProblem::Kind::kInputGradient, ConvProblem::Kind::kWeightGradient}) {
    ConvProblem problem = Usual();
    problem.kind = kind;
    EXPECT_TRUE(planner->Find(problem, Effort::kMeasure).ok())
        << planner->Find(problem, Effort::kMeasure).status();
  }
  const AttentionProblem attention = {.is_gradient = true,
                                      .type = Type::kBf16,
                                      .rows = 4,
                                      .positions = 1024,
                                      .heads = 12,
                                      .width = 64};
  EXPECT_TRUE(planner->Find(attention, Effort::kMeasure).ok())
      << planner->Find(attention, Effort::kMeasure).status();
}

TEST_P(Plans, AreTheSameForTheSameProblem) {
  const std::unique_ptr<Planner> planner = PlannerFor(GetParam());
  const absl::StatusOr<const Plan*> first = planner->Find(Usual(), Effort::kMeasure);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(*first, *planner->Find(Usual(), Effort::kMeasure));
  EXPECT_EQ((*first)->facts().candidates, 1);
  EXPECT_FALSE((*first)->facts().engine.empty());
}

TEST_P(Plans, OfADescriptionDoNotRun) {
  const std::unique_ptr<Planner> planner = PlannerFor(GetParam());
  const absl::StatusOr<const Plan*> plan = planner->Find(Usual(), Effort::kMeasure);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ((*plan)->Run(ConvMemory(), nullptr, nullptr).code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_P(Plans, DoNotExistForWhatIsNoConvolution) {
  const std::unique_ptr<Planner> planner = PlannerFor(GetParam());
  ConvProblem problem = Usual();
  problem.out_height = 31;
  EXPECT_EQ(planner->Find(problem, Effort::kMeasure).status().code(), absl::StatusCode::kNotFound);
}

TEST_P(Plans, DoNotExistWithinTooLittleWorkspace) {
  PlannerOptions options;
  options.workspace_bytes_max = 0;
  const auto planner = *Planner::ForDescription(Description(GetParam()), options);
  const AttentionProblem attention = {.is_gradient = true,
                                      .type = Type::kBf16,
                                      .rows = 4,
                                      .positions = 1024,
                                      .heads = 12,
                                      .width = 64};
  const absl::Status status = planner->Find(attention, Effort::kMeasure).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
}

TEST_P(Plans, DoNotExistForAttentionThatIsNotSafe) {
  const std::unique_ptr<Planner> planner = PlannerFor(GetParam());
  const AttentionProblem attention = {
      .type = Type::kBf16, .rows = 4, .positions = 100, .heads = 12, .width = 64};
  EXPECT_EQ(planner->Find(attention, Effort::kMeasure).status().code(),
            absl::StatusCode::kNotFound);
}

INSTANTIATE_TEST_SUITE_P(Cuda, Plans, Values("h200", "a100"),
                         [](const TestParamInfo<const char*>& of) {
                           return std::string(of.param);
                         });

TEST(PlannerTest, TakesFromItsFileWhatAnotherOneChose) {
  const trainyard::testing::TempDir folder;
  PlannerOptions options;
  options.cache_folder = folder.File("plans");
  std::string engine;
  {
    const auto planner = *Planner::ForDescription(Description("h200"), options);
    const absl::StatusOr<const Plan*> plan = planner->Find(Usual(), Effort::kMeasure);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_FALSE((*plan)->facts().from_cache);
    engine = (*plan)->facts().engine;
  }
  const auto planner = *Planner::ForDescription(Description("h200"), options);
  EXPECT_TRUE((*planner->Find(Usual(), Effort::kMeasure))->facts().from_cache);
  EXPECT_EQ((*planner->Find(Usual(), Effort::kMeasure))->facts().engine, engine);
  // The plan is not used for another device, nor for other options.
  const auto other = *Planner::ForDescription(Description("a100"), options);
  EXPECT_FALSE((*other->Find(Usual(), Effort::kMeasure))->facts().from_cache);
  options.deterministic = true;
  const auto deterministic = *Planner::ForDescription(Description("h200"), options);
  EXPECT_FALSE((*deterministic->Find(Usual(), Effort::kMeasure))->facts().from_cache);
}

TEST(PlannerTest, PlansAnewWhatItsFileDoesNotTell) {
  const trainyard::testing::TempDir folder;
  PlannerOptions options;
  options.cache_folder = folder.File("plans");
  {
    const auto planner = *Planner::ForDescription(Description("h200"), options);
    ASSERT_TRUE(planner->Find(Usual(), Effort::kMeasure).ok());
  }
  for (const auto& entry : std::filesystem::directory_iterator(options.cache_folder)) {
    nlohmann::json file = nlohmann::json::parse(*ReadFile(entry.path().string()));
    file["plan"] = "no plan";
    ASSERT_TRUE(ReplaceFile(entry.path().string(), file.dump()).ok());
  }
  const auto planner = *Planner::ForDescription(Description("h200"), options);
  const absl::StatusOr<const Plan*> plan = planner->Find(Usual(), Effort::kMeasure);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_FALSE((*plan)->facts().from_cache);
}

TEST(PlannerTest, RefusesATextThatDescribesNoDevice) {
  for (const char* text : {"", "no JSON", "[]", "{\"deviceName\": \"a\"}",
                           "{\"deviceName\": \"a\", \"deviceVer\": 900}"}) {
    EXPECT_EQ(Planner::ForDescription(text, {}).status().code(), absl::StatusCode::kInvalidArgument)
        << text;
  }
}

TEST(PlannerTest, GivesTheDescriptionBack) {
  EXPECT_EQ(*PlannerFor("h200")->DeviceDescription(), Description("h200"));
}

TEST(PlannerTest, SaysWhatToDoWithoutADevice) {
  const absl::Status status = Planner::ForDevice({}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_NE(status.message().find("or run on the CPU"), std::string::npos) << status;
}

}  // namespace
}  // namespace trainyard::engine::cuda::dnn
