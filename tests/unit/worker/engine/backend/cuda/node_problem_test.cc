// Tests problems for cuDNN: their keys, and how nodes of step graphs become problems. cuDNN itself
// takes no part.
#include "worker/engine/backend/cuda/dnn/node_problem.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "worker/engine/models/models.h"

namespace trainyard::engine::cuda::dnn {
namespace {

TEST(Problems, DifferInTheirKeysWhereTheyDiffer) {
  const std::vector<std::function<void(ConvProblem&)>> changes = {
      [](ConvProblem&) {},
      [](ConvProblem& p) { p.kind = ConvProblem::Kind::kInputGradient; },
      [](ConvProblem& p) { p.kind = ConvProblem::Kind::kWeightGradient; },
      [](ConvProblem& p) { p.type = Type::kF32; },
      [](ConvProblem& p) { p.type = Type::kF16; },
      [](ConvProblem& p) { p.tf32 = true; },
      [](ConvProblem& p) { p.rows = 12; },
      [](ConvProblem& p) { p.channels = 12; },
      [](ConvProblem& p) { p.height = 12; },
      [](ConvProblem& p) { p.width = 12; },
      [](ConvProblem& p) { p.out_channels = 12; },
      [](ConvProblem& p) { p.out_height = 12; },
      [](ConvProblem& p) { p.out_width = 12; },
      [](ConvProblem& p) { p.kernel = 12; },
      [](ConvProblem& p) { p.stride = 12; },
      [](ConvProblem& p) { p.padding = 12; },
      [](ConvProblem& p) { p.dilation = 12; },
      [](ConvProblem& p) { p.groups = 12; },
      [](ConvProblem& p) { p.x_stride = 12; },
      [](ConvProblem& p) { p.y_stride = 12; },
      [](ConvProblem& p) { p.bias = true; },
      [](ConvProblem& p) { p.relu = true; },
      [](ConvProblem& p) { p.statistics = true; },
      [](ConvProblem& p) { p.f32_gradient = true; }};
  std::set<std::string> keys;
  for (const auto& change : changes) {
    ConvProblem problem;
    change(problem);
    EXPECT_TRUE(keys.insert(problem.Key()).second) << problem.Key();
  }
  for (const bool is_gradient : {false, true}) {
    for (const Type type : {Type::kF16, Type::kBf16}) {
      for (const AttentionProblem problem : {AttentionProblem{is_gradient, type, 1, 1, 1, 1},
                                             AttentionProblem{is_gradient, type, 2, 1, 1, 1},
                                             AttentionProblem{is_gradient, type, 1, 2, 1, 1},
                                             AttentionProblem{is_gradient, type, 1, 1, 2, 1},
                                             AttentionProblem{is_gradient, type, 1, 1, 1, 2}}) {
        EXPECT_TRUE(keys.insert(problem.Key()).second) << problem.Key();
      }
    }
  }
}

TEST(Problems, OfAttentionAreSafeWhereGradientsAreKnownToBeRight) {
  const AttentionProblem gpt2 = {
      .type = Type::kBf16, .rows = 4, .positions = 1024, .heads = 12, .width = 64};
  EXPECT_TRUE(gpt2.is_safe());
  for (const AttentionProblem& problem : {AttentionProblem{false, Type::kF32, 4, 1024, 12, 64},
                                          AttentionProblem{false, Type::kBf16, 4, 1000, 12, 64},
                                          AttentionProblem{false, Type::kBf16, 4, 0, 12, 64},
                                          AttentionProblem{false, Type::kBf16, 4, 1024, 12, 60},
                                          AttentionProblem{false, Type::kBf16, 4, 1024, 12, 136},
                                          AttentionProblem{false, Type::kBf16, 4, 1024, 0, 64}}) {
    EXPECT_FALSE(problem.is_safe()) << problem.Key();
  }
}

std::vector<ConvProblem> ProblemsOf(const Graph& model, OpKind op, Type type) {
  const StepGraph step = BuildTrainingStep(model, {});
  std::vector<ConvProblem> problems;
  for (const Node& node : step.graph.nodes) {
    if (node.op == op) {
      problems.push_back(ProblemOf(step, node, 16, type, /*tf32=*/true));
    }
  }
  return problems;
}

TEST(Problems, OfAStepHavePaddedChannelsAndWhatWasFused) {
  const Graph model = *BuildConvnet({.input = {3, 12, 10}, .channels = {20, 64}});
  const std::vector<ConvProblem> forward = ProblemsOf(model, OpKind::kConv2d, Type::kBf16);
  ASSERT_EQ(forward.size(), 2u);
  EXPECT_EQ(forward[0].Key(), "fwd bf16 n16 c8 12x10 k24 12x10 3x3 s1 p1 d1 g1 xs8 ys24 bias relu");
  EXPECT_EQ(forward[1].Key(), "fwd bf16 n16 c24 6x5 k64 6x5 3x3 s1 p1 d1 g1 xs24 ys64 bias relu");
  const std::vector<ConvProblem> input =
      ProblemsOf(model, OpKind::kConv2dInputGradient, Type::kF32);
  ASSERT_EQ(input.size(), 1u);
  EXPECT_EQ(input[0].Key(), "dgrad f32 tf32 n16 c20 6x5 k64 6x5 3x3 s1 p1 d1 g1 xs20 ys64");
  const std::vector<ConvProblem> weight =
      ProblemsOf(model, OpKind::kConv2dParameterGradient, Type::kF16);
  ASSERT_EQ(weight.size(), 2u);
  EXPECT_EQ(weight[1].Key(), "wgrad f16 n16 c8 12x10 k24 12x10 3x3 s1 p1 d1 g1 xs8 ys24");
}

TEST(Problems, OfMergedSiblingsHaveTheChannelsOfAll) {
  const Graph model = *BuildGooglenet({.input = {3, 32, 32}, .stem = Stem::kCifar, .classes = 10});
  // a3: 64, 96 and 16 channels, from 192.
  const std::string merged = "fwd bf16 n16 c192 32x32 k176 32x32 1x1 s1 p0 d1 g1 xs192 ys176 bias";
  std::set<std::string> keys;
  for (const ConvProblem& problem : ProblemsOf(model, OpKind::kConv2d, Type::kBf16)) {
    keys.insert(problem.Key());
  }
  EXPECT_EQ(keys.count(merged), 1u);
}

TEST(Problems, OfGroupsKeepTheirChannels) {
  EXPECT_EQ(ChannelsInMemory(12, 1, Type::kBf16), 16);
  EXPECT_EQ(ChannelsInMemory(12, 4, Type::kBf16), 12);
}

TEST(Problems, OfAttentionHaveTheShapesOfTheModel) {
  const Graph model =
      *BuildGpt2({.layers = 1, .heads = 4, .width = 128, .context = 256, .vocabulary = 100});
  const StepGraph step = BuildTrainingStep(model, {});
  std::set<std::string> keys;
  for (const Node& node : step.graph.nodes) {
    if (node.op == OpKind::kAttention || node.op == OpKind::kAttentionGradient) {
      keys.insert(AttentionProblemOf(step, node, 3, Type::kBf16).Key());
    }
  }
  EXPECT_EQ(keys, (std::set<std::string>{"attention bf16 n3 t256 h4 d32",
                                         "attention_gradient bf16 n3 t256 h4 d32"}));
}

}  // namespace
}  // namespace trainyard::engine::cuda::dnn
