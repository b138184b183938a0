// Tests the shapes of stacks of layers, and each message about layers that do not fit.
#include "common/layers/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace trainyard::layers {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr Kind kRelu = Plain::kRelu;
constexpr Kind kAdd = Plain::kAdd;
constexpr Kind kConcat = Plain::kConcat;
constexpr Kind kFlatten = Plain::kFlatten;

Layer Of(Kind kind, std::vector<std::string> from = {}) {
  return {"", std::move(from), std::move(kind)};
}
Layer Named(std::string name, Kind kind, std::vector<std::string> from = {}) {
  return {std::move(name), std::move(from), std::move(kind)};
}

// A stack over images that ends in ten classes, whatever layers come before.
Stack Images(std::vector<Layer> layers) {
  Stack stack{.input = {3, 32, 32}, .layers = std::move(layers)};
  stack.layers.push_back(Of(Plain::kGlobalAvgPool));
  stack.layers.push_back(Of(kFlatten));
  stack.layers.push_back(Of(Linear{.features = 10}));
  return stack;
}

// Returns "stack[3].from[0]: relu 'relu1' reads ..." for each mistake.
std::vector<std::string> Mistakes(const Stack& stack) {
  std::vector<FieldViolation> violations;
  PlanStack(stack, "m", violations);
  std::vector<std::string> texts;
  texts.reserve(violations.size());
  for (const FieldViolation& violation : violations) {
    texts.push_back(absl::StrCat(violation.field.substr(2), ": ", violation.description));
  }
  return texts;
}

Shape OutputOf(const Stack& stack, size_t layer = 0) {
  std::vector<FieldViolation> violations;
  const StackPlan plan = PlanStack(stack, "m", violations);
  EXPECT_THAT(violations, IsEmpty());
  return plan.layers[layer].output;
}

TEST(Plan, ShapesFollowTheLayers) {
  const auto image = [](Kind kind) { return OutputOf(Images({Of(std::move(kind))})); };
  EXPECT_THAT(image(Conv2d{.channels = 8}), ElementsAre(8, 30, 30));
  EXPECT_THAT(image(Conv2d{.channels = 8, .kernel = 5, .stride = 2, .padding = 2}),
              ElementsAre(8, 16, 16));
  EXPECT_THAT(image(Conv2d{.channels = 6, .dilation = 2, .groups = 3}), ElementsAre(6, 28, 28));
  EXPECT_THAT(image(MaxPool{.kernel = 3}), ElementsAre(3, 10, 10));
  EXPECT_THAT(image(MaxPool{.kernel = 3, .ceil_mode = true}), ElementsAre(3, 11, 11));
  EXPECT_THAT(image(AvgPool{.kernel = 2, .stride = 1, .padding = 1}), ElementsAre(3, 33, 33));
  EXPECT_THAT(image(BatchNorm()), ElementsAre(3, 32, 32));
  EXPECT_THAT(image(Lrn()), ElementsAre(3, 32, 32));
  EXPECT_THAT(image(GroupNorm{.groups = 3}), ElementsAre(3, 32, 32));
  EXPECT_THAT(image(Upsample{.scale = 3}), ElementsAre(3, 96, 96));
  EXPECT_THAT(image(Dropout()), ElementsAre(3, 32, 32));
  EXPECT_THAT(image(Gelu()), ElementsAre(3, 32, 32));
  const Stack flat = {.input = {3, 4, 5},
                      .layers = {Of(kFlatten), Of(Linear{.features = 7}), Of(LayerNorm())}};
  EXPECT_THAT(OutputOf(flat, 0), ElementsAre(60));
  EXPECT_THAT(OutputOf(flat, 2), ElementsAre(7));
}

TEST(Plan, SequencesEndWithClassesAtEachPosition) {
  const Stack stack = {
      .input = {64},
      .vocabulary = 100,
      .layers = {Of(Embedding{.width = 24}), Of(Plain::kPositionEmbedding), Of(LayerNorm()),
                 Of(Linear{.features = 72}), Of(Attention{.heads = 3}),
                 Of(kAdd, {"layer_norm1", "attention1"}), Of(Linear{.features = 100})}};
  std::vector<FieldViolation> violations;
  const StackPlan plan = PlanStack(stack, "m", violations);
  EXPECT_THAT(violations, IsEmpty());
  EXPECT_THAT(plan.layers[4].output, ElementsAre(64, 24));
  EXPECT_THAT(plan.layers[5].inputs, ElementsAre(2, 4));
  EXPECT_EQ(plan.classes, 100);
}

TEST(Plan, NamesAreKindAndNumberOrAsGiven) {
  std::vector<FieldViolation> violations;
  const Stack stack = Images({Of(Conv2d{.channels = 4}), Named("b.norm", BatchNorm()), Of(kRelu),
                              Of(Conv2d{.channels = 4}), Of(kRelu, {"conv2d2"})});
  const StackPlan plan = PlanStack(stack, "m", violations);
  std::vector<std::string> names;
  for (const PlannedLayer& layer : plan.layers) names.push_back(layer.name);
  EXPECT_THAT(names, ElementsAre("conv2d1", "b.norm", "relu1", "conv2d2", "relu2",
                                 "global_avg_pool1", "flatten1", "linear1"));
}

TEST(Plan, AnImageIsFlattenedBeforeALinear) {
  const Stack stack = {.input = {3, 32, 32}, .layers = {Of(MaxPool()), Named("head", Linear{10})}};
  EXPECT_THAT(Mistakes(stack),
              ElementsAre("stack[1]: linear 'head' reads [3, 16, 16] of 'max_pool1', an image; put "
                          "`flatten` before it"));
}

TEST(Plan, WhatSlidesOverImagesReadsImages) {
  for (const Kind& kind : {Kind(Conv2d{.channels = 4}), Kind(BatchNorm()),
                           Kind(GroupNorm{.groups = 2}), Kind(MaxPool()), Kind(AvgPool()),
                           Kind(Lrn()), Kind(Upsample()), Kind(Plain::kGlobalAvgPool)}) {
    const Stack stack = {.input = {3, 4, 4},
                         .layers = {Of(kFlatten), Of(kind), Of(Linear{.features = 10})}};
    EXPECT_THAT(Mistakes(stack),
                ElementsAre(HasSubstr("reads [48] of 'flatten1', a flat value; expected an image "
                                      "[channels, height, width]: let it stand before `flatten`")))
        << KindName(kind);
  }
}

TEST(Plan, GroupsDivideTheChannels) {
  EXPECT_THAT(
      Mistakes(Images({Of(GroupNorm{.groups = 2})})),
      ElementsAre(HasSubstr("group_norm 'group_norm1' has 2 groups, which must divide the 3 "
                            "channels of 'input'")));
}

TEST(Plan, WindowsFitTheirInput) {
  EXPECT_THAT(Mistakes(Images({Of(Conv2d{.channels = 4, .kernel = 17, .dilation = 3})})),
              ElementsAre(HasSubstr("conv2d 'conv2d1' has a window of 49x49, which is larger than "
                                    "[3, 32, 32] of 'input' with padding 0")));
  Stack pooled = Images({Of(MaxPool{.kernel = 15}), Of(MaxPool{.kernel = 3})});
  EXPECT_THAT(Mistakes(pooled), ElementsAre(HasSubstr("larger than [3, 2, 2] of 'max_pool1'")));
  EXPECT_THAT(Mistakes(Images({Of(AvgPool{.kernel = 32})})),
              ElementsAre("stack[0]: avg_pool 'avg_pool1' has kernel 32; expected at most 15, or "
                          "`global_avg_pool` for the mean of a whole channel"));
  EXPECT_THAT(Mistakes(Images({Of(MaxPool{.kernel = 3, .padding = 2})})),
              ElementsAre(HasSubstr("has padding 2, which is more than half of kernel 3")));
}

TEST(Plan, GroupsDivideBothSides) {
  EXPECT_THAT(Mistakes(Images({Of(Conv2d{.channels = 8, .groups = 2})})),
              ElementsAre("stack[0]: conv2d 'conv2d1' has 2 groups, which must divide the 3 "
                          "channels of 'input' and its own 8"));
}

TEST(Plan, ALayerReadsOnlyWhatStandsBefore) {
  const Stack stack =
      Images({Named("first", Conv2d{.channels = 4}), Of(kRelu, {"frist"}), Of(kRelu, {"relu3"}),
              Named("relu3", kRelu, {"relu3"}), Of(kRelu, {"zzzzzzzzz"})});
  EXPECT_THAT(
      Mistakes(stack),
      ElementsAre("stack[1].from[0]: relu 'relu1' reads 'frist', and no layer before it has that "
                  "name; did you mean 'first'?",
                  "stack[2].from[0]: relu 'relu2' reads 'relu3', stack[3], which comes after it; "
                  "expected a layer before it: move one of them",
                  "stack[3].from[0]: relu 'relu3' reads itself; expected a layer before it, or "
                  "input",
                  "stack[4].from[0]: relu 'relu4' reads 'zzzzzzzzz', and no layer before it has "
                  "that name"));
}

TEST(Plan, NamesDiffer) {
  const Stack stack =
      Images({Named("relu2", kRelu), Named("a", kRelu), Named("a", kRelu), Named("input", kRelu)});
  EXPECT_THAT(Mistakes(stack),
              ElementsAre("stack[2].name: relu 'a' has the name of stack[1]; use another",
                          "stack[3].name: relu 'input' has the name of the sample; use another"));
  EXPECT_THAT(Mistakes(Images({Named("relu2", kRelu), Of(kRelu)})),
              ElementsAre("stack[1]: relu 'relu2' would be called as stack[0] is; give it a "
                          "`name`"));
}

TEST(Plan, AddAndConcatReadSeveralAndTheOthersOne) {
  EXPECT_THAT(Mistakes(Images({Of(kRelu), Of(kAdd)})),
              ElementsAre("stack[1]: add 'add1' reads several layers; name them, such as from: "
                          "[input, conv2d1]"));
  EXPECT_THAT(Mistakes(Images({Of(kConcat, {"input"})})),
              ElementsAre("stack[0].from: concat 'concat1' reads 1 layer; expected two or more"));
  EXPECT_THAT(Mistakes(Images({Named("a", kRelu), Of(kRelu, {"input", "a"})})),
              ElementsAre("stack[1].from: relu 'relu2' reads 2 layers; only add and concat read "
                          "several: put one before it"));
}

TEST(Plan, SumsAreOfEqualShapesAndConcatenationsOfEqualSides) {
  const std::vector<Layer> two = {Named("a", Conv2d{.channels = 4, .stride = 2, .padding = 1}),
                                  Named("b", Conv2d{.channels = 4}, {"input"})};
  std::vector<Layer> sum = two, join = two, flat = two;
  sum.push_back(Of(kAdd, {"a", "b"}));
  join.push_back(Of(kConcat, {"a", "b"}));
  flat.push_back(Of(kFlatten));
  flat.push_back(Of(kConcat, {"a", "flatten1"}));
  EXPECT_THAT(Mistakes(Images(sum)),
              ElementsAre(HasSubstr("add 'add1' cannot add [4, 30, 30] of 'b' to [4, 16, 16] of "
                                    "'a'; expected equal shapes: a `conv2d` with kernel 1")));
  EXPECT_THAT(Mistakes(Images(join)),
              ElementsAre(HasSubstr("concat 'concat1' cannot join [4, 30, 30] of 'b', an image, to "
                                    "[4, 16, 16] of 'a', an image; expected images of equal height "
                                    "and width, or flat values")));
  EXPECT_THAT(Mistakes(Images(flat)), ElementsAre(HasSubstr("[3600] of 'flatten1', a flat value")));
}

TEST(Plan, EveryLayerIsRead) {
  EXPECT_THAT(Mistakes(Images({Of(Conv2d{.channels = 4}), Of(kRelu, {"input"})})),
              ElementsAre("stack[0]: conv2d 'conv2d1' is read by no layer; name it in the `from` "
                          "of a later one, or leave it out"));
}

TEST(Plan, TheLastLayerGivesClasses) {
  const Stack image = {.input = {3, 8, 8}, .layers = {Of(Conv2d{.channels = 10})}};
  EXPECT_THAT(Mistakes(image),
              ElementsAre("stack[0]: conv2d 'conv2d1' ends the stack with [10, 6, 6], an image; "
                          "expected [classes], as `flatten` and `linear` give it"));
  const Stack one = {.input = {3, 8, 8}, .layers = {Of(kFlatten), Of(Linear{.features = 1})}};
  EXPECT_THAT(Mistakes(one), ElementsAre(HasSubstr("ends the stack with 1 class;")));
  const Stack tokens = {
      .input = {8}, .vocabulary = 9, .layers = {Of(Embedding{.width = 4}), Of(kFlatten)}};
  EXPECT_THAT(Mistakes(tokens),
              ElementsAre(HasSubstr("ends the stack with [32], a flat value; expected [positions, "
                                    "vocabulary], as `linear` gives it")));
}

TEST(Plan, EveryTokenIsAClass) {
  const Stack stack = {.input = {8},
                       .vocabulary = 9,
                       .layers = {Of(Embedding{.width = 4}), Of(Linear{.features = 8})}};
  EXPECT_THAT(Mistakes(stack),
              ElementsAre("stack[1]: linear 'linear1' ends the stack with 8 classes; expected 9, "
                          "one for each token of the vocabulary"));
}

TEST(Plan, SomethingIsTrained) {
  const Stack stack = {.input = {3, 8, 8}, .layers = {Of(kFlatten)}};
  EXPECT_THAT(Mistakes(stack), ElementsAre("stack: has no layer with weights, and so nothing to "
                                           "train; add conv2d or linear"));
}

TEST(Plan, SamplesAreImagesOrTokens) {
  Stack stack = Images({Of(Conv2d{.channels = 4})});
  stack.input = {32, 32};
  EXPECT_THAT(Mistakes(stack), ElementsAre("input: [32, 32] has 2 numbers; expected channels, "
                                           "height, width, or `vocabulary` beside it"));
  stack.input = {3, 32, 32};
  stack.vocabulary = 10;
  EXPECT_THAT(Mistakes(stack), ElementsAre(HasSubstr("expected the number of tokens alone")));
  stack.vocabulary = 1;
  EXPECT_THAT(Mistakes(stack)[0], HasSubstr("vocabulary: 1 is not accepted"));
}

TEST(Plan, TokensAreEmbeddedFirst) {
  const Stack stack = {.input = {8},
                       .vocabulary = 9,
                       .layers = {Of(Linear{.features = 4}), Of(Embedding{.width = 4}),
                                  Of(kAdd, {"input", "linear1"}), Of(Linear{.features = 9})}};
  EXPECT_THAT(
      Mistakes(stack),
      ElementsAre("stack[0]: linear 'linear1' reads [8] of 'input', numbers of tokens; put "
                  "`embedding` before it",
                  "stack[1]: embedding 'embedding1' reads [8, 4] of 'linear1', a sequence; only "
                  "the sample holds tokens: write from: [input]",
                  HasSubstr("add 'add1' reads [8] of 'input', numbers of tokens"),
                  HasSubstr("embedding 'embedding1' is read by no layer")));
  EXPECT_THAT(Mistakes(Images({Of(Embedding{.width = 4})})),
              ElementsAre(HasSubstr("needs samples of tokens; set `vocabulary` beside the stack")));
}

TEST(Plan, AttentionReadsThreeTimesItsWidth) {
  const auto stack = [](int64_t width, int64_t heads) {
    return Stack{.input = {8},
                 .vocabulary = 9,
                 .layers = {Of(Embedding{.width = width}), Of(Attention{.heads = heads}),
                            Of(Linear{.features = 9})}};
  };
  EXPECT_THAT(Mistakes(stack(12, 2)), IsEmpty());
  EXPECT_THAT(Mistakes(stack(10, 2)),
              ElementsAre(HasSubstr("reads 10 features of 'embedding1'; expected queries, keys and "
                                    "values side by side")));
  EXPECT_THAT(Mistakes(stack(12, 3)),
              ElementsAre(HasSubstr("has 3 heads, which must divide the width 4")));
  EXPECT_THAT(Mistakes(Images({Of(Attention())})),
              ElementsAre(HasSubstr("an image; expected a sequence [positions, features]")));
}

TEST(Plan, SizesDoNotOverflow) {
  const Stack huge = {.input = {65536, 4096, 4096},
                      .layers = {Of(kFlatten), Of(Linear{.features = 16777216})}};
  EXPECT_THAT(Mistakes(huge),
              ElementsAre(HasSubstr("has a weight [16777216, 1099511627776], which is too large")));
  const Stack wild = Images({Of(Conv2d{.channels = 1, .kernel = INT64_MAX, .stride = 0}),
                             Of(MaxPool{.kernel = -1, .stride = INT64_MIN})});
  EXPECT_THAT(Mistakes(wild), IsEmpty()) << "the rules of the fields speak of these";
}

TEST(Plan, AnUnknownShapeGivesNoFurtherMistakes) {
  const Stack stack = Images({Of(Conv2d{.channels = 4, .kernel = 99}), Of(BatchNorm()),
                              Of(Conv2d{.channels = 4, .groups = 3}), Of(std::monostate())});
  EXPECT_THAT(Mistakes(stack), SizeIs(1));
}

TEST(Plan, MistakesAreToldUpToALimit) {
  Stack stack = {.input = {3, 8, 8}, .layers = std::vector<Layer>(5000, Of(kRelu, {"nothing"}))};
  EXPECT_THAT(Mistakes(stack), SizeIs(40));
}

}  // namespace
}  // namespace trainyard::layers
