#include "worker/engine/graph/graph_builder.h"
#include "worker/engine/graph/cost.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace trainyard::engine {
namespace {

using ::testing::HasSubstr;

std::string BuildError(GraphBuilder builder) {
  const absl::StatusOr<Graph> graph = std::move(builder).Build();
  EXPECT_EQ(graph.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(graph.status().message());
}

TEST(GraphBuilder, InfersTheShapesOfEveryLayer) {
  GraphBuilder builder({3, 13, 9});
  const ValueId conv = builder.Conv2d("conv", builder.input(),
                                      {.channels = 8, .kernel = 3, .stride = 2, .padding = 1});
  const ValueId norm = builder.BatchNorm("bn", conv);
  const ValueId relu = builder.Relu(norm);
  const ValueId max = builder.MaxPool(relu, {.kernel = 3, .stride = 2, .padding = 1});
  const ValueId average = builder.AvgPool(max, {.kernel = 2, .stride = 1});
  const ValueId global = builder.GlobalAvgPool(average);
  const ValueId flat = builder.Flatten(global);
  const ValueId logits = builder.Linear("fc", builder.Tanh(flat), 5);
  builder.SoftmaxCrossEntropy(logits);
  const absl::StatusOr<Graph> graph = std::move(builder).Build();
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(graph->value(conv).shape, Shape({8, 7, 5}));
  EXPECT_EQ(graph->value(norm).shape, Shape({8, 7, 5}));
  EXPECT_EQ(graph->value(max).shape, Shape({8, 4, 3}));
  EXPECT_EQ(graph->value(average).shape, Shape({8, 3, 2}));
  EXPECT_EQ(graph->value(global).shape, Shape({8, 1, 1}));
  EXPECT_EQ(graph->value(flat).shape, Shape({8}));
  EXPECT_EQ(graph->value(logits).shape, Shape({5}));
  EXPECT_EQ(graph->classes(), 5);
}

TEST(GraphBuilder, DilationWidensTheWindow) {
  GraphBuilder builder({1, 9, 9});
  const ValueId conv =
      builder.Conv2d("conv", builder.input(), {.channels = 2, .kernel = 3, .dilation = 3});
  builder.SoftmaxCrossEntropy(builder.Linear("fc", builder.Flatten(conv), 2));
  const absl::StatusOr<Graph> graph = std::move(builder).Build();
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(graph->value(conv).shape, Shape({2, 3, 3}));
}

TEST(GraphBuilder, CeilModeKeepsALastWindowThatStartsInsideTheInput) {
  const auto pooled = [](int64_t size, const PoolOptions& options) {
    GraphBuilder builder({1, size, size});
    const ValueId y = builder.MaxPool(builder.input(), options);
    builder.SoftmaxCrossEntropy(builder.Linear("fc", builder.Flatten(y), 2));
    return std::move(builder).Build()->value(y).shape[1];
  };
  EXPECT_EQ(pooled(112, {.kernel = 3, .stride = 2}), 55);
  EXPECT_EQ(pooled(112, {.kernel = 3, .stride = 2, .ceil_mode = true}), 56);
  EXPECT_EQ(pooled(7, {.kernel = 3, .stride = 2, .ceil_mode = true}), 3);
  // The sixth window would start in the padding after the input.
  EXPECT_EQ(pooled(9, {.kernel = 2, .stride = 2, .padding = 1, .ceil_mode = true}), 5);
}

TEST(GraphBuilder, ConcatAddsUpTheChannels) {
  GraphBuilder builder({3, 4, 5});
  const ValueId a = builder.Conv2d("a", builder.input(), {.channels = 2, .padding = 1});
  const ValueId all = builder.Concat({a, builder.input(), a});
  const ValueId normal = builder.Lrn(builder.Dropout(all, 0.5), {});
  // A dropout with rate 0 adds no node.
  EXPECT_EQ(builder.Dropout(normal, 0), normal);
  builder.SoftmaxCrossEntropy(builder.Linear("fc", builder.Flatten(normal), 2));
  const absl::StatusOr<Graph> graph = std::move(builder).Build();
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(graph->value(all).shape, Shape({7, 4, 5}));
  EXPECT_EQ(graph->value(normal).shape, Shape({7, 4, 5}));
}

TEST(GraphBuilder, SequencesKeepTheirPositions) {
  GraphBuilder builder = GraphBuilder::ForTokens(8, 23);
  ValueId x = builder.Embedding("tok", builder.input(), 16);
  x = builder.PositionEmbedding("pos", x, 32);
  const ValueId norm = builder.LayerNorm("ln", x);
  const ValueId heads = builder.Linear("qkv", norm, 48);
  const ValueId attended = builder.Attention(heads, 4);
  const ValueId logits = builder.Linear("head", builder.Add(x, attended), 23, false);
  builder.SoftmaxCrossEntropy(logits);
  const absl::StatusOr<Graph> graph = std::move(builder).Build();
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(graph->value(norm).shape, Shape({8, 16}));
  EXPECT_EQ(graph->value(heads).shape, Shape({8, 48}));
  EXPECT_EQ(graph->value(attended).shape, Shape({8, 16}));
  EXPECT_EQ(graph->value(logits).shape, Shape({8, 23}));
  EXPECT_EQ(graph->value(graph->labels).shape, Shape({8}));
  EXPECT_EQ(graph->classes(), 23);
  EXPECT_EQ(graph->labels_per_row(), 8);
  EXPECT_EQ(graph->vocabulary, 23);
  for (const Value& value : graph->values) {
    if (value.name == "tok.weight") {
      EXPECT_EQ(value.shape, Shape({23, 16}));
    } else if (value.name == "pos.weight") {
      EXPECT_EQ(value.shape, Shape({32, 16}));
    } else if (value.name == "ln.weight") {
      EXPECT_EQ(value.shape, Shape({16}));
    }
  }
  // There are 2 x 16 x 48 operations at each position.
  EXPECT_EQ(NodeCost(*graph, graph->nodes[3], 2).flops, 2.0 * 2 * 8 * 16 * 48);
}

TEST(GraphBuilder, RefusesLayersThatDoNotFitASequence) {
  const auto error = [](const std::function<void(GraphBuilder&, ValueId)>& add) {
    GraphBuilder builder = GraphBuilder::ForTokens(8, 23);
    add(builder, builder.Embedding("tok", builder.input(), 15));
    return BuildError(std::move(builder));
  };
  EXPECT_THAT(error([](GraphBuilder& b, ValueId) { b.Linear("fc", b.input(), 3); }),
              AllOf(HasSubstr("layer 'fc'"), HasSubstr("only an embedding reads")));
  EXPECT_THAT(error([](GraphBuilder& b, ValueId x) { b.Embedding("again", x, 3); }),
              HasSubstr("layer 'again': expected the input of a graph over tokens"));
  EXPECT_THAT(error([](GraphBuilder& b, ValueId) { b.Embedding("again", b.input(), 0); }),
              HasSubstr("width 0"));
  EXPECT_THAT(error([](GraphBuilder& b, ValueId x) { b.TiedLinear("head", x, "wte"); }),
              HasSubstr("layer 'head': no embedding is called 'wte'"));
  EXPECT_THAT(
      error([](GraphBuilder& b, ValueId x) { b.TiedLinear("head", b.Linear("fc", x, 4), "tok"); }),
      AllOf(HasSubstr("[8, 4]"), HasSubstr("[23, 15]")));
  EXPECT_THAT(error([](GraphBuilder& b, ValueId x) { b.Attention(x, 2); }),
              AllOf(HasSubstr("2 heads"), HasSubstr("[8, 15]")));
  EXPECT_THAT(error([](GraphBuilder& b, ValueId x) { b.Attention(b.Flatten(x), 1); }),
              AllOf(HasSubstr("[120]"), HasSubstr("[positions, features]")));
  EXPECT_THAT(error([](GraphBuilder& b, ValueId x) { b.PositionEmbedding("pos", x, 7); }),
              AllOf(HasSubstr("7 positions"), HasSubstr("at least 8")));
  EXPECT_THAT(error([](GraphBuilder& b, ValueId x) { b.LayerNorm("ln", x, 0); }),
              HasSubstr("eps 0"));
  EXPECT_THAT(error([](GraphBuilder& b, ValueId x) { b.Conv2d("conv", x, {}); }),
              HasSubstr("[channels, height, width]"));
  EXPECT_THAT(error([](GraphBuilder& b, ValueId x) {
                b.Concat({x, x});
              }),
              HasSubstr("expected equal height and width, or features"));
  EXPECT_THAT(BuildError(GraphBuilder::ForTokens(8, 1)), HasSubstr("a vocabulary of 1"));
  EXPECT_THAT(BuildError(GraphBuilder::ForTokens(8, (1 << 24) + 1)), HasSubstr("16777217"));
  EXPECT_THAT(BuildError(GraphBuilder::ForTokens(0, 5)), HasSubstr("layer 'input'"));
  GraphBuilder images({3, 4, 4});
  images.LayerNorm("ln", images.input());
  EXPECT_THAT(BuildError(std::move(images)),
              AllOf(HasSubstr("layer 'ln'"), HasSubstr("[positions, features]")));
}

TEST(GraphBuilder, NamesTheLayerAndTheShapesWhereTheyDoNotFit) {
  {
    GraphBuilder builder({3, 4, 4});
    builder.Concat({builder.input(), builder.MaxPool(builder.input(), {.kernel = 2})});
    EXPECT_THAT(
        BuildError(std::move(builder)),
        AllOf(HasSubstr("layer 'concat1'"), HasSubstr("[3, 2, 2]"), HasSubstr("[3, 4, 4]")));
  }
  {
    GraphBuilder builder({3, 4, 4});
    builder.Concat({builder.input()});
    EXPECT_THAT(BuildError(std::move(builder)), HasSubstr("1 inputs; expected at least 2"));
  }
  {
    GraphBuilder builder({3, 4, 4});
    builder.Dropout(builder.input(), 1);
    EXPECT_THAT(BuildError(std::move(builder)),
                AllOf(HasSubstr("layer 'dropout1'"), HasSubstr("rate 1; expected [0, 1)")));
  }
  {
    GraphBuilder builder({3, 4, 4});
    builder.Lrn(builder.input(), {.k = 0});
    EXPECT_THAT(BuildError(std::move(builder)),
                AllOf(HasSubstr("layer 'lrn1'"), HasSubstr("k above 0")));
  }
  {
    GraphBuilder builder({3, 4, 4});
    builder.Conv2d("stem", builder.input(), {.channels = 8, .kernel = 7});
    EXPECT_THAT(BuildError(std::move(builder)),
                AllOf(HasSubstr("layer 'stem'"), HasSubstr("7x7"), HasSubstr("[3, 4, 4]")));
  }
  {
    GraphBuilder builder({4});
    builder.SoftmaxCrossEntropy(builder.Linear("fc", builder.input(), 3), 1);
    EXPECT_THAT(BuildError(std::move(builder)),
                AllOf(HasSubstr("layer 'loss'"), HasSubstr("label smoothing 1")));
  }
  {
    GraphBuilder builder({3, 4, 4});
    builder.Linear("fc", builder.input(), 8);
    EXPECT_THAT(BuildError(std::move(builder)),
                AllOf(HasSubstr("layer 'fc'"), HasSubstr("[3, 4, 4]"), HasSubstr("[features]")));
  }
  {
    GraphBuilder builder({4, 6, 6});
    builder.Add(builder.Conv2d("a", builder.input(), {.channels = 2}),
                builder.Conv2d("b", builder.input(), {.channels = 3}));
    EXPECT_THAT(BuildError(std::move(builder)),
                AllOf(HasSubstr("[2, 4, 4]"), HasSubstr("[3, 4, 4]")));
  }
  {
    GraphBuilder builder({4, 6, 6});
    builder.Conv2d("grouped", builder.input(), {.channels = 6, .groups = 4});
    EXPECT_THAT(BuildError(std::move(builder)), HasSubstr("groups 4 must divide"));
  }
  {
    GraphBuilder builder({4, 6, 6});
    builder.MaxPool(builder.input(), {.kernel = 3, .padding = 2});
    EXPECT_THAT(BuildError(std::move(builder)), HasSubstr("padding 2"));
  }
  {
    GraphBuilder builder({4, 6, 6});
    builder.MaxPool(builder.input(), {.kernel = kMaxPoolKernel + 1});
    EXPECT_THAT(BuildError(std::move(builder)), HasSubstr("window 16"));
  }
}

TEST(GraphBuilder, RefusesASecondLayerOfOneName) {
  GraphBuilder builder({8});
  builder.Linear("fc", builder.Linear("fc", builder.input(), 8), 8);
  EXPECT_THAT(BuildError(std::move(builder)), HasSubstr("layer 'fc'"));
}

TEST(GraphBuilder, RefusesAGraphWithoutALossAndLayersThatNobodyUses) {
  {
    GraphBuilder builder({8});
    builder.Linear("fc", builder.input(), 8);
    EXPECT_THAT(BuildError(std::move(builder)), HasSubstr("without softmax_cross_entropy"));
  }
  {
    GraphBuilder builder({8});
    builder.Linear("unused", builder.input(), 8);
    builder.SoftmaxCrossEntropy(builder.Linear("fc", builder.input(), 8));
    EXPECT_THAT(BuildError(std::move(builder)), HasSubstr("layer 'unused'"));
  }
}

TEST(GraphBuilder, RefusesInputsAndTensorsOfImpossibleSizes) {
  EXPECT_THAT(BuildError(GraphBuilder({3, 4})), HasSubstr("[3, 4]"));
  EXPECT_THAT(BuildError(GraphBuilder({0})), HasSubstr("[0]"));
  GraphBuilder builder({1 << 20});
  builder.Linear("huge", builder.input(), int64_t{1} << 40);
  EXPECT_THAT(BuildError(std::move(builder)), HasSubstr("too large"));
}

TEST(GraphCost, CountsMultiplicationsAndAdditionsOfAConvolution) {
  GraphBuilder builder({3, 8, 8});
  builder.SoftmaxCrossEntropy(
      builder.Linear("fc",
                     builder.Flatten(builder.Conv2d("conv", builder.input(),
                                                    {.channels = 4, .kernel = 3, .padding = 1})),
                     10));
  const absl::StatusOr<Graph> graph = std::move(builder).Build();
  ASSERT_TRUE(graph.ok()) << graph.status();
  // There are 2 * (outputs 4 * 8 * 8) * (dot product 3 * 3 * 3) operations for each of 5 rows.
  EXPECT_EQ(NodeCost(*graph, graph->nodes[0], 5).flops, 5 * 2.0 * 256 * 27);
  // A row has 192 floats of input and 256 of output; the weight has 108 and the bias 4.
  EXPECT_EQ(NodeCost(*graph, graph->nodes[0], 5).bytes, 4.0 * (5 * (192 + 256) + 108 + 4));
}

}  // namespace
}  // namespace trainyard::engine
