// Compares inline stacks with the graphs that they become: the plan's shapes are the graph's, a
// stack that spells out a model of the zoo equals that model, and any stack trains on both backends
// alike.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/layers/cuts.h"
#include "common/layers/plan.h"
#include "tests/unit/worker/engine/engine_testing.h"
#include "worker/engine/graph/split.h"
#include "worker/engine/models/models.h"

namespace trainyard::engine {
namespace {

using layers::Kind;
using layers::Layer;
using layers::Plain;
using layers::Stack;
using ::testing::HasSubstr;
using testing::NamedValues;

Layer Of(Kind kind, std::vector<std::string> from = {}) {
  return {"", std::move(from), std::move(kind)};
}
Layer Named(std::string name, Kind kind, std::vector<std::string> from = {}) {
  return {std::move(name), std::move(from), std::move(kind)};
}

Graph Built(const Stack& stack) {
  absl::StatusOr<Graph> graph = BuildLayers(stack);
  EXPECT_TRUE(graph.ok()) << graph.status();
  return *std::move(graph);
}

// Returns all state after a few steps with a given start.
NamedValues Trained(const Graph& model, const std::string& backend, const OptimizerSpec& optimizer,
                    int steps) {
  constexpr int64_t kRows = 6;
  const auto executable = testing::Compile(backend, model, optimizer, {.max_rows = kRows});
  testing::RandomizeState(3, *executable);
  for (int step = 0; step < steps; ++step) {
    const testing::TestBatch batch =
        testing::RandomBatch(static_cast<uint64_t>(step), model, kRows);
    EXPECT_TRUE(executable->Accumulate(batch.batch(), 1, {}).ok());
    EXPECT_TRUE(executable->Update(0.05).ok());
  }
  return testing::ReadAllState(*executable);
}

void ExpectSameTraining(const Graph& left, const Graph& right) {
  EXPECT_EQ(testing::RenderGraph(left), testing::RenderGraph(right));
  const OptimizerSpec optimizer = {.momentum = 0.9};
  EXPECT_EQ(Trained(left, "cpu", optimizer, 3), Trained(right, "cpu", optimizer, 3));
}

TEST(Layers, AStackThatSpellsOutTheConvnetIsTheConvnet) {
  const Stack stack = {
      .input = {1, 28, 28},
      .layers = {Named("conv1", layers::Conv2d{.channels = 8, .padding = 1}), Of(Plain::kRelu),
                 Of(layers::MaxPool()), Named("conv2", layers::Conv2d{.channels = 6, .padding = 1}),
                 Of(Plain::kRelu), Of(layers::MaxPool()), Of(Plain::kFlatten),
                 Named("fc", layers::Linear{.features = 10})}};
  ExpectSameTraining(Built(stack), *BuildConvnet({.input = {1, 28, 28}, .channels = {8, 6}}));
}

Stack Resnet20() {
  Stack stack = {.input = {3, 32, 32}};
  const auto conv = [](int64_t channels, int64_t kernel, int64_t stride) {
    return layers::Conv2d{.channels = channels,
                          .kernel = kernel,
                          .stride = stride,
                          .padding = kernel / 2,
                          .bias = false};
  };
  std::string last = "relu";
  stack.layers = {Named("conv1", conv(16, 3, 1)), Named("bn1", layers::BatchNorm()),
                  Named("relu", Plain::kRelu)};
  for (int stage = 1; stage <= 3; ++stage) {
    for (int block = 0; block < 3; ++block) {
      const std::string name = absl::StrCat("layer", stage, ".", block);
      const int64_t channels = int64_t{8} << stage;
      const int64_t stride = stage > 1 && block == 0 ? 2 : 1;
      stack.layers.push_back(Named(name + ".conv1", conv(channels, 3, stride)));
      stack.layers.push_back(Named(name + ".bn1", layers::BatchNorm()));
      stack.layers.push_back(Of(Plain::kRelu));
      stack.layers.push_back(Named(name + ".conv2", conv(channels, 3, 1)));
      stack.layers.push_back(Named(name + ".bn2", layers::BatchNorm()));
      if (stride == 2) {
        stack.layers.push_back(Named(name + ".downsample.0", conv(channels, 1, 2), {last}));
        stack.layers.push_back(Named(name + ".downsample.1", layers::BatchNorm()));
        last = name + ".downsample.1";
      }
      stack.layers.push_back(Of(Plain::kAdd, {name + ".bn2", last}));
      last = name + ".relu";
      stack.layers.push_back(Named(last, Plain::kRelu));
    }
  }
  stack.layers.push_back(Of(Plain::kGlobalAvgPool));
  stack.layers.push_back(Of(Plain::kFlatten));
  stack.layers.push_back(Named("fc", layers::Linear{.features = 10}));
  return stack;
}

TEST(Layers, AStackThatSpellsOutResnet20IsResnet20) {
  ExpectSameTraining(
      Built(Resnet20()),
      *BuildResnet({.input = {3, 32, 32}, .depth = 20, .stem = Stem::kCifar, .classes = 10}));
}

TEST(Layers, WhatDoesNotFitIsToldByItsPath) {
  const Stack stack = {.input = {3, 8, 8}, .layers = {Of(layers::Linear{.features = 10})}};
  const absl::Status status = BuildLayers(stack).status();
  EXPECT_EQ(ErrorReason(status), error::kInvalidSpec);
  EXPECT_THAT(std::string(status.message()), HasSubstr("model.layers.stack[0]"));
  EXPECT_FALSE(BuildLayers({}).ok());
}

// Draws stacks that fit, layer by layer: each layer reads any earlier layers whose shapes suit it,
// and outputs that no layer reads are joined at the end.
class RandomStack {
 public:
  explicit RandomStack(uint32_t seed) : random_(seed) {}

  Stack Draw() {
    stack_.input = {Pick({1, 3, 4}), Pick({5, 8, 11}), Pick({6, 8, 9})};
    const int layers = 2 + static_cast<int>(random_() % 8);
    for (int tries = 0; static_cast<int>(stack_.layers.size()) < layers && tries < 200; ++tries) {
      Try(DrawLayer());
    }
    Finish();
    return stack_;
  }

 private:
  int64_t Pick(std::initializer_list<int64_t> values) {
    return *(values.begin() + random_() % values.size());
  }
  std::string AnyName() {
    const size_t which = random_() % (stack_.layers.size() + 1);
    return which == 0 ? "input" : stack_.layers[which - 1].name;
  }

  Layer DrawLayer() {
    const auto channels = [&] { return Pick({2, 4, 6, 8}); };
    const auto small = [&] { return Pick({1, 2, 3}); };
    std::vector<std::string> from = {AnyName()};
    Kind kind;
    switch (random_() % 14) {
      case 0:
      case 1:
      case 2:
        kind = layers::Conv2d{.channels = channels(),
                              .kernel = small(),
                              .stride = Pick({1, 1, 2}),
                              .padding = Pick({0, 1, 2}),
                              .dilation = Pick({1, 1, 2}),
                              .groups = Pick({1, 1, 2}),
                              .bias = random_() % 2 == 0};
        break;
      case 3:
        kind = layers::BatchNorm{.eps = 1e-3};
        break;
      case 4:
        kind = layers::MaxPool{.kernel = Pick({2, 3}),
                               .stride = Pick({0, 1, 2}),
                               .padding = Pick({0, 1}),
                               .ceil_mode = random_() % 2 == 0};
        break;
      case 5:
        kind = layers::AvgPool{.kernel = Pick({2, 3}),
                               .stride = Pick({0, 1, 2}),
                               .padding = Pick({0, 1}),
                               .count_padding = random_() % 2 == 0};
        break;
      case 6:
        kind = layers::Lrn{.size = Pick({3, 5})};
        break;
      case 7:
        kind = layers::Gelu{.tanh = random_() % 2 == 0};
        break;
      case 8:
        kind = Plain::kTanh;
        break;
      case 9:
        kind = Plain::kSigmoid;
        break;
      case 10:
      case 11:
        kind = Plain::kRelu;
        break;
      default:
        kind = random_() % 2 == 0 ? Plain::kAdd : Plain::kConcat;
        from.push_back(AnyName());
        if (random_() % 3 == 0) from.push_back(AnyName());
    }
    return {absl::StrCat("l", stack_.layers.size()), std::move(from), kind};
  }

  // Keeps the layer if it fits.
  void Try(Layer layer) {
    stack_.layers.push_back(std::move(layer));
    if (!Fits()) stack_.layers.pop_back();
  }

  // Returns true if the last layer is valid, apart from how the stack ends and which layers read
  // it.
  bool Fits() const {
    Stack closed = stack_;
    Close(closed);
    std::vector<FieldViolation> violations;
    layers::PlanStack(closed, "m", violations);
    return violations.empty();
  }

  // Flattens outputs that no layer reads, joins them, and classifies.
  static void Close(Stack& stack) {
    std::vector<std::string> loose;
    for (const Layer& layer : stack.layers) {
      bool is_read = false;
      for (const Layer& other : stack.layers) {
        for (const std::string& name : other.from) is_read |= name == layer.name;
      }
      if (!is_read) loose.push_back(layer.name);
    }
    std::vector<std::string> flat;
    for (const std::string& name : loose) {
      stack.layers.push_back(Named("flat." + name, Plain::kFlatten, {name}));
      flat.push_back("flat." + name);
    }
    if (flat.size() > 1) stack.layers.push_back(Named("joined", Plain::kConcat, flat));
    stack.layers.push_back(Named("fc", layers::Linear{.features = 5}));
  }

  void Finish() { Close(stack_); }

  std::mt19937 random_;
  Stack stack_;
};

class RandomStackTest : public ::testing::TestWithParam<uint32_t> {};

TEST_P(RandomStackTest, ThePlanIsTheGraphAndBothBackendsAgree) {
  const Stack stack = RandomStack(GetParam()).Draw();
  std::vector<FieldViolation> violations;
  const layers::StackPlan plan = layers::PlanStack(stack, "m", violations);
  ASSERT_TRUE(violations.empty()) << violations[0].description;
  const Graph graph = Built(stack);
  // A sum of three is two nodes, and only its last has the shape that counts: the outputs of the
  // plan come in the order of the nodes.
  size_t node = 0;
  for (size_t i = 0; i < plan.layers.size(); ++i) {
    if (stack.layers[i].kind == Kind(Plain::kAdd)) node += plan.layers[i].inputs.size() - 2;
    EXPECT_EQ(graph.value(graph.nodes[node].outputs[0]).shape, plan.layers[i].output)
        << plan.layers[i].name << "\n"
        << testing::RenderGraph(graph);
    ++node;
  }
  EXPECT_EQ(graph.classes(), plan.classes);
  EXPECT_EQ(static_cast<size_t>(layers::CountCuts(stack, plan)), PossibleCuts(graph).size());
  SCOPED_TRACE(testing::RenderGraph(graph));
  testing::ExpectNear(Trained(graph, "cpu", {.momentum = 0.9}, 2),
                      Trained(graph, "reference", {.momentum = 0.9}, 2), 2e-3);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomStackTest, ::testing::Range(uint32_t{0}, uint32_t{60}));

// No stage may begin between the embedding and the classifier, which has the same weight.
TEST(Layers, TheCutsOfGpt2AreThoseOfItsGraph) {
  const Gpt2Spec spec = {.layers = 3, .heads = 2, .width = 8, .context = 5, .vocabulary = 11};
  const auto stack = networks::StackOf(spec);
  ASSERT_TRUE(stack.ok()) << stack.status();
  std::vector<FieldViolation> violations;
  const layers::StackPlan plan = layers::PlanStack(*stack, "m", violations);
  ASSERT_TRUE(violations.empty()) << violations[0].description;
  EXPECT_EQ(plan.classes, 11);
  EXPECT_EQ(static_cast<size_t>(layers::CountCuts(*stack, plan)),
            PossibleCuts(*BuildGpt2(spec)).size());
}

}  // namespace
}  // namespace trainyard::engine
