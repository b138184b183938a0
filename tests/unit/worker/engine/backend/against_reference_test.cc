// Compares every op of the backend under test, forward and backward, with the reference in double
// precision, over odd shapes: channels that fill no block, batches of 1, strides, paddings, and all
// of these mixed.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "tests/unit/worker/engine/bf16_testing.h"
#include "tests/unit/worker/engine/engine_testing.h"
#include "worker/engine/graph/graph_builder.h"
#include "worker/engine/graph/passes.h"

namespace trainyard::engine {
namespace {

using testing::Compile;
using testing::TestBatch;
using testing::Values;

// The tolerance is for f32 sums of up to some thousand products.
constexpr double kTolerance = 2e-5;

void Compare(const std::string& what, const Graph& model, int64_t rows,
             const PassOptions& passes = {}) {
  SCOPED_TRACE(absl::StrCat(what, ", ", rows, " rows"));
  for (const Precision precision : {Precision::kBf16, Precision::kF16}) {
    if (testing::Has(precision)) {
      testing::CompareReduced(model, rows, passes, precision);
    }
  }
  const CompileOptions options = {.max_rows = rows, .passes = passes, .inspect = true};
  const std::unique_ptr<Executable> expected = Compile("reference_f64", model, {}, options);
  const std::unique_ptr<Executable> actual = Compile(testing::TestedBackend(), model, {}, options);
  testing::RandomizeState(5, *expected);
  testing::CopyState(*expected, *actual);
  const TestBatch batch = testing::RandomBatch(9, model, rows);
  // It runs twice: the first run overwrites the reduction, and the second adds to it.
  for (int time = 0; time < 2; ++time) {
    ASSERT_TRUE(expected->Accumulate(batch.batch(), 0.5, nullptr).ok());
    const absl::Status status = actual->Accumulate(batch.batch(), 0.5, nullptr);
    ASSERT_TRUE(status.ok()) << status;
    testing::ExpectNear(testing::Gradients(model, *actual), testing::Gradients(model, *expected),
                        kTolerance);
    const Inspection a = *actual->Inspect();
    const Inspection b = *expected->Inspect();
    EXPECT_NEAR(a.loss, b.loss, kTolerance);
    testing::ExpectNear(Values(a.logits.begin(), a.logits.end()),
                        Values(b.logits.begin(), b.logits.end()), kTolerance, "logits");
    testing::ExpectNear(Values(a.input_gradient.begin(), a.input_gradient.end()),
                        Values(b.input_gradient.begin(), b.input_gradient.end()), kTolerance,
                        "input gradient");
  }
  testing::ExpectNear(testing::ReadReduction(*actual), testing::ReadReduction(*expected),
                      kTolerance, "reduction");
  ASSERT_TRUE(expected->Update(0.1).ok());
  ASSERT_TRUE(actual->Update(0.1).ok());
  testing::ExpectNear(testing::ReadAllState(*actual), testing::ReadAllState(*expected), kTolerance);
  testing::ExpectNear(*actual->Predict(batch.inputs), *expected->Predict(batch.inputs),
                      5 * kTolerance, "predictions");
}

Graph Close(Shape input, const std::function<ValueId(GraphBuilder&)>& layers) {
  GraphBuilder builder(std::move(input));
  builder.SoftmaxCrossEntropy(builder.Linear("fc", builder.Flatten(layers(builder)), 7));
  absl::StatusOr<Graph> graph = std::move(builder).Build();
  EXPECT_TRUE(graph.ok()) << graph.status();
  return *std::move(graph);
}

TEST(Bf16, IsComparedOnThisMachine) {
  if (!testing::Has(Precision::kBf16)) {
    GTEST_SKIP() << "no AVX512_BF16: every comparison of this file was made in f32 alone";
  }
}

TEST(Conv2d, AgreesWithTheReference) {
  struct Case {
    Shape input;
    layers::Conv2d options;
    int64_t rows;
  };
  const Case cases[] = {
      {{1, 9, 7}, {.channels = 32, .kernel = 3, .padding = 1}, 3},
      {{3, 11, 10}, {.channels = 5, .kernel = 3, .stride = 2, .padding = 1}, 2},
      {{16, 6, 6}, {.channels = 32, .kernel = 3, .padding = 1}, 1},
      {{12, 7, 5}, {.channels = 20, .kernel = 1, .stride = 2, .bias = false}, 4},
      {{4, 8, 8}, {.channels = 8, .kernel = 1, .stride = 2, .bias = false}, 4},
      {{8, 9, 9}, {.channels = 16, .kernel = 5, .stride = 2, .padding = 2}, 2},
      {{5, 9, 9}, {.channels = 7, .kernel = 3, .padding = 2, .dilation = 2}, 2},
      {{16, 5, 5}, {.channels = 16, .kernel = 3, .padding = 1, .groups = 4}, 2},
      {{6, 5, 5}, {.channels = 9, .kernel = 3, .groups = 3, .bias = false}, 1},
      {{2, 13, 13}, {.channels = 3, .kernel = 7, .stride = 3, .padding = 3}, 2},
      // These have enough tiles for minimal filtering: one image, images of a part of a tile,
      // images of one row, widths of every remainder by 4, and channels that fill no block. One has
      // so many channels that oneDNN's minimal filtering is used.
      {{16, 33, 30}, {.channels = 16, .kernel = 3, .padding = 1, .bias = false}, 1},
      {{16, 3, 2}, {.channels = 48, .kernel = 3, .padding = 1}, 70},
      {{24, 7, 5}, {.channels = 20, .kernel = 3, .padding = 1}, 17},
      {{20, 1, 15}, {.channels = 12, .kernel = 3, .padding = 1}, 17},
      {{32, 8, 12}, {.channels = 16, .kernel = 3, .padding = 1, .bias = false}, 11},
      {{40, 10, 9}, {.channels = 33, .kernel = 3, .padding = 1}, 8},
      {{208, 3, 2}, {.channels = 192, .kernel = 3, .padding = 1}, 64},
      {{64, 7, 11}, {.channels = 72, .kernel = 3, .padding = 1, .bias = false}, 11},
  };
  for (const Case& c : cases) {
    const std::string what = absl::StrCat("conv2d ", ShapeString(c.input), " to ",
                                          c.options.channels, ", kernel ", c.options.kernel);
    // The convolution is tried by itself, rectified, and as the second of two, so that its input
    // has a blocked layout.
    Compare(what,
            Close(c.input, [&](GraphBuilder& b) { return b.Conv2d("conv", b.input(), c.options); }),
            c.rows);
    Compare(what + ", relu",
            Close(c.input,
                  [&](GraphBuilder& b) { return b.Relu(b.Conv2d("conv", b.input(), c.options)); }),
            c.rows);
    Compare(what + ", after another",
            Close(c.input,
                  [&](GraphBuilder& b) {
                    const ValueId x = b.Conv2d("first", b.input(),
                                               {.channels = c.input[0], .kernel = 3, .padding = 1});
                    return b.Relu(b.Conv2d("conv", b.Tanh(x), c.options));
                  }),
            c.rows);
  }
}

TEST(Linear, AgreesWithTheReference) {
  for (const int64_t in : {1, 5, 16, 100}) {
    for (const int64_t out : {1, 10, 33}) {
      for (const int64_t rows : {1, 5, 16}) {
        Compare(absl::StrCat("linear ", in, " to ", out),
                Close({in},
                      [&](GraphBuilder& b) {
                        const ValueId x = b.Relu(b.Linear("first", b.input(), out));
                        return b.Tanh(b.Linear("second", x, in, false));
                      }),
                rows);
      }
    }
  }
}

TEST(Elementwise, AgreesWithTheReference) {
  struct Case {
    const char* name;
    ValueId (*layer)(GraphBuilder&, ValueId);
  };
  const Case cases[] = {
      {"relu", [](GraphBuilder& b, ValueId x) { return b.Relu(x); }},
      {"tanh", [](GraphBuilder& b, ValueId x) { return b.Tanh(x); }},
      {"sigmoid", [](GraphBuilder& b, ValueId x) { return b.Sigmoid(x); }},
      {"gelu", [](GraphBuilder& b, ValueId x) { return b.Gelu(x); }},
      {"gelu by tanh", [](GraphBuilder& b, ValueId x) { return b.Gelu(x, {.tanh = true}); }},
  };
  for (const Case& item : cases) {
    for (const int64_t channels : {3, 8, 20}) {
      // The layer is between convolutions, so that blocks filled up with zeros come in and go out.
      const layers::Conv2d conv = {.channels = channels, .kernel = 3, .padding = 1};
      Compare(absl::StrCat(item.name, " of ", channels),
              Close({2, 5, 7},
                    [&](GraphBuilder& b) {
                      const ValueId x = b.Conv2d("conv", b.input(), conv);
                      return b.Conv2d("after", item.layer(b, x), conv);
                    }),
              3);
    }
    Compare(absl::StrCat(item.name, " of features"),
            Close({13},
                  [&](GraphBuilder& b) { return item.layer(b, b.Linear("first", b.input(), 33)); }),
            1);
  }
}

TEST(Concat, AgreesWithTheReference) {
  const std::vector<int64_t> cases[] = {{16, 32, 8}, {16, 8, 16}, {3, 5}, {8, 8, 8, 3}, {32, 1}};
  for (const std::vector<int64_t>& channels : cases) {
    Compare("concat of " + ShapeString(channels),
            Close({2, 5, 6},
                  [&](GraphBuilder& b) {
                    std::vector<ValueId> parts;
                    parts.reserve(channels.size() + 1);
                    for (const int64_t count : channels) {
                      parts.push_back(b.Relu(b.Conv2d(absl::StrCat("conv", parts.size()), b.input(),
                                                      {.channels = count, .padding = 1})));
                    }
                    parts.push_back(b.MaxPool(parts[0], {.kernel = 3, .stride = 1, .padding = 1}));
                    return b.Conv2d("after", b.Concat(parts), {.channels = 9, .kernel = 1});
                  }),
            3);
  }
  Compare("concat of features and of a flattened plane",
          Close({16, 2, 2},
                [](GraphBuilder& b) {
                  const ValueId x = b.Conv2d("conv", b.input(), {.channels = 16, .kernel = 1});
                  const ValueId flat = b.Flatten(x);
                  return b.Tanh(b.Concat({flat, b.Linear("linear", flat, 5), flat}));
                }),
          1);
}

TEST(GroupNorm, AgreesWithTheReference) {
  // Groups lie within a block of channels, over several blocks, and across their borders.
  const std::pair<int64_t, int64_t> cases[] = {{3, 1}, {8, 8}, {20, 4}, {48, 2}, {36, 3}};
  for (const auto& [channels, groups] : cases) {
    const layers::Conv2d conv = {.channels = channels, .kernel = 3, .padding = 1};
    Compare(absl::StrCat("group_norm of ", channels, " in ", groups, " groups"),
            Close({2, 5, 7},
                  [&, groups = groups](GraphBuilder& b) {
                    ValueId x = b.Conv2d("conv", b.input(), conv);
                    x = b.Relu(b.Layer("norm", x, layers::GroupNorm{.groups = groups}));
                    return b.Conv2d("after", x, conv);
                  }),
            3);
  }
  Compare("group_norm of the input",
          Close({6, 3, 3},
                [](GraphBuilder& b) {
                  return b.Layer("norm", b.input(), layers::GroupNorm{.groups = 2, .eps = 0.1});
                }),
          2);
}

TEST(Upsample, AgreesWithTheReference) {
  for (const int64_t scale : {1, 2, 3}) {
    for (const int64_t channels : {3, 8, 20, 32}) {
      const layers::Conv2d conv = {.channels = channels, .kernel = 3, .padding = 1};
      Compare(absl::StrCat("upsample of ", channels, " by ", scale),
              Close({2, 3, 5},
                    [&](GraphBuilder& b) {
                      const ValueId x = b.Relu(b.Conv2d("conv", b.input(), conv));
                      return b.Conv2d("after", b.Layer("", x, layers::Upsample{.scale = scale}),
                                      conv);
                    }),
              3);
    }
  }
}

TEST(Lrn, AgreesWithTheReference) {
  const layers::Lrn cases[] = {{.size = 5, .alpha = 1, .k = 2},
                               {.size = 4, .alpha = 0.5, .beta = 0.6},
                               {.size = 21, .alpha = 1, .beta = 0.75}};
  for (const layers::Lrn& options : cases) {
    for (const int64_t channels : {3, 8, 20, 32}) {
      const layers::Conv2d conv = {.channels = channels, .kernel = 3, .padding = 1};
      Compare(absl::StrCat("lrn of ", channels, " over ", options.size),
              Close({2, 5, 7},
                    [&](GraphBuilder& b) {
                      const ValueId x = b.Relu(b.Conv2d("conv", b.input(), conv));
                      return b.MaxPool(b.Lrn(x, options), {.kernel = 2});
                    }),
              3);
    }
  }
  Compare(
      "lrn of the input",
      Close({5, 3, 3}, [&](GraphBuilder& b) { return b.Lrn(b.input(), {.size = 3, .alpha = 1}); }),
      1);
}

TEST(Dropout, AgreesWithTheReference) {
  for (const int64_t channels : {3, 16, 20}) {
    const layers::Conv2d conv = {.channels = channels, .kernel = 3, .padding = 1};
    Compare(absl::StrCat("dropout of ", channels),
            Close({2, 5, 7},
                  [&](GraphBuilder& b) {
                    const ValueId x = b.Dropout(b.Conv2d("conv", b.input(), conv), 0.3);
                    return b.Dropout(b.Flatten(b.Relu(b.Conv2d("after", x, conv))), 0.5);
                  }),
            3);
  }
}

TEST(Linear, WithTransposedWeightsAgreesWithTheReference) {
  for (const int64_t in : {1, 5, 48}) {
    for (const int64_t out : {1, 10, 33}) {
      Compare(absl::StrCat("transposed linear ", in, " to ", out),
              Close({in},
                    [&](GraphBuilder& b) {
                      const ValueId x = b.Relu(b.TransposedLinear("first", b.input(), out));
                      return b.TransposedLinear("second", x, in);
                    }),
              out % 4 + 1);
    }
  }
  Compare("transposed linear after blocked planes",
          Close({3, 4, 4},
                [](GraphBuilder& b) {
                  const ValueId x =
                      b.Conv2d("conv", b.input(), {.channels = 32, .kernel = 3, .padding = 1});
                  return b.TransposedLinear("linear", b.Flatten(b.Relu(x)), 9);
                }),
          3);
}

TEST(Linear, WithWhatFollowsItAgreesWithTheReference) {
  using B = GraphBuilder;
  using Layers = std::function<ValueId(B&, ValueId, int64_t width)>;
  constexpr layers::Gelu kByTanh = {.tanh = true};
  const std::pair<const char*, Layers> cases[] = {
      {"gelu by tanh",
       [=](B& b, ValueId x, int64_t width) {
         const ValueId y = b.Gelu(b.Linear("first", x, 2 * width), kByTanh);
         return b.TransposedLinear("second", y, width);
       }},
      {"gelu beside another reader",
       [=](B& b, ValueId x, int64_t width) {
         const ValueId y = b.Linear("first", x, width);
         return b.Add(b.Gelu(y, kByTanh), b.Tanh(y));
       }},
      {"sum with the input",
       [](B& b, ValueId x, int64_t width) { return b.Add(x, b.Linear("first", x, width)); }},
      {"sum with the input, which is read later",
       [](B& b, ValueId x, int64_t width) {
         const ValueId y = b.Add(b.Linear("first", x, width), x);
         return b.Add(y, b.Sigmoid(x));
       }},
      {"sum of two",
       [](B& b, ValueId x, int64_t width) {
         const ValueId y = b.Linear("first", x, width);
         return b.Add(y, b.TransposedLinear("second", x, width));
       }},
      {"sum with itself",
       [](B& b, ValueId x, int64_t width) {
         const ValueId y = b.Linear("first", x, width);
         return b.Add(y, y);
       }},
      {"sum after relu",
       [](B& b, ValueId x, int64_t width) {
         return b.Add(x, b.Relu(b.Linear("first", x, width)));
       }},
  };
  for (const auto& [what, layers] : cases) {
    for (const int64_t width : {5, 16}) {
      GraphBuilder features({width});
      const ValueId x = layers(features, features.Tanh(features.input()), width);
      features.SoftmaxCrossEntropy(features.Linear("fc", x, 7));
      Compare(absl::StrCat(what, " of ", width, " features"), *std::move(features).Build(), 3);
      GraphBuilder tokens = GraphBuilder::ForTokens(4, 9);
      const ValueId y = layers(tokens, tokens.Embedding("tok", tokens.input(), width), width);
      tokens.SoftmaxCrossEntropy(tokens.Linear("head", y, 7));
      Compare(absl::StrCat(what, " of tokens of ", width), *std::move(tokens).Build(), 2);
    }
  }
}

struct SequenceCase {
  int64_t length, heads, head_width, rows;
};

// The lengths are around the block of queries that attention takes at once, and one is a single
// token.
const SequenceCase kSequences[] = {
    {1, 1, 1, 1}, {7, 2, 5, 3}, {8, 4, 4, 1}, {64, 1, 16, 2}, {65, 3, 3, 1}, {130, 2, 8, 2},
};

Graph Transformer(const SequenceCase& c) {
  GraphBuilder b = GraphBuilder::ForTokens(c.length, 11);
  const int64_t width = c.heads * c.head_width;
  ValueId x = b.PositionEmbedding("pos", b.Embedding("tok", b.input(), width), c.length + 3);
  x = b.Dropout(x, 0.1);
  ValueId y = b.Attention(b.Linear("qkv", b.LayerNorm("ln1", x), 3 * width), c.heads);
  x = b.Add(x, b.Linear("proj", y, width));
  y = b.Gelu(b.Linear("fc1", b.LayerNorm("ln2", x), 4 * width), {.tanh = true});
  x = b.Add(x, b.Dropout(b.Linear("fc2", y, width), 0.1));
  b.SoftmaxCrossEntropy(b.Linear("head", b.LayerNorm("lnf", x), 11, false), 0.1);
  absl::StatusOr<Graph> graph = std::move(b).Build();
  EXPECT_TRUE(graph.ok()) << graph.status();
  return *std::move(graph);
}

TEST(Sequences, AgreeWithTheReference) {
  for (const SequenceCase& c : kSequences) {
    Compare(absl::StrCat("transformer of ", c.length, " tokens"), Transformer(c), c.rows);
  }
}

TEST(Sequences, WithATiedEmbeddingAgreeWithTheReference) {
  for (const int64_t width : {5, 16}) {
    GraphBuilder b = GraphBuilder::ForTokens(6, 19);
    const ValueId x = b.Gelu(b.Linear("hidden", b.Embedding("tok", b.input(), width), width));
    b.SoftmaxCrossEntropy(b.TiedLinear("head", x, "tok"));
    Compare(absl::StrCat("tied embedding of ", width), *std::move(b).Build(), 3);
  }
}

TEST(Sequences, AgreeWithTheReferenceOpByOp) {
  for (const SequenceCase& c : kSequences) {
    const auto close = [&](const std::function<ValueId(GraphBuilder&, ValueId)>& layers) {
      GraphBuilder b = GraphBuilder::ForTokens(c.length, 6);
      const ValueId x = layers(b, b.Embedding("tok", b.input(), 3 * c.heads * c.head_width));
      b.SoftmaxCrossEntropy(b.Linear("head", x, 6));
      return *std::move(b).Build();
    };
    const std::string what = absl::StrCat(" of ", c.length, " tokens");
    Compare("embedding" + what, close([](GraphBuilder&, ValueId x) { return x; }), c.rows);
    // If only 3 features are normalised, rounding is a large part of the result.
    if (c.heads * c.head_width > 1) {
      Compare("layer_norm" + what,
              close([](GraphBuilder& b, ValueId x) { return b.LayerNorm("ln", x); }), c.rows);
    }
    Compare("linear, relu" + what,
            close([](GraphBuilder& b, ValueId x) { return b.Relu(b.Linear("linear", x, 9)); }),
            c.rows);
    Compare("attention" + what,
            close([&](GraphBuilder& b, ValueId x) { return b.Attention(x, c.heads); }), c.rows);
  }
  Compare("layer_norm of features and of flattened blocks",
          Close({16, 2, 2},
                [](GraphBuilder& b) {
                  const ValueId x = b.Conv2d("conv", b.input(), {.channels = 16, .kernel = 1});
                  return b.LayerNorm("ln", b.Flatten(x));
                }),
          3);
}

// Lets the layer "second" use the parameters of the layer "first". No model does so with these
// layers, but a graph allows it for every layer.
Graph WithSharedParameters(Graph graph) {
  std::map<std::string, ValueId> ids;
  std::vector<ValueId> stand_in;
  std::vector<Value> values;
  for (const Value& value : graph.values) {
    absl::string_view name = value.name;
    if (value.role == Role::kParameter && absl::ConsumePrefix(&name, "second.")) {
      stand_in.push_back(ids.at(absl::StrCat("first.", name)));
      continue;
    }
    stand_in.push_back(static_cast<ValueId>(values.size()));
    ids[value.name] = stand_in.back();
    values.push_back(value);
  }
  graph.values = std::move(values);
  const auto renumber = [&](ValueId& id) {
    if (id != kNoValue) id = stand_in[static_cast<size_t>(id)];
  };
  for (Node& node : graph.nodes) {
    std::for_each(node.inputs.begin(), node.inputs.end(), renumber);
    std::for_each(node.outputs.begin(), node.outputs.end(), renumber);
  }
  for (ValueId* id : {&graph.input, &graph.labels, &graph.logits, &graph.loss, &graph.correct}) {
    renumber(*id);
  }
  return graph;
}

TEST(SharedParameters, HaveTheGradientsOfAllLayers) {
  using Layer = std::function<ValueId(GraphBuilder&, const std::string&, ValueId)>;
  const std::pair<std::string, Layer> images[] = {
      {"conv2d",
       [](GraphBuilder& b, const std::string& name, ValueId x) {
         return b.Conv2d(name, x, {.channels = 6, .kernel = 3, .padding = 1});
       }},
      {"batch_norm",
       [](GraphBuilder& b, const std::string& name, ValueId x) { return b.BatchNorm(name, x); }},
      {"group_norm", [](GraphBuilder& b, const std::string& name,
                        ValueId x) { return b.Layer(name, x, layers::GroupNorm{.groups = 2}); }},
  };
  const auto both = [](GraphBuilder& b, const Layer& layer, ValueId x) {
    const ValueId first = layer(b, "first", x);
    return b.Add(first, layer(b, "second", b.Tanh(x)));
  };
  for (const auto& [what, layer] : images) {
    Compare(
        what,
        WithSharedParameters(Close(
            {6, 5, 4}, [&, &layer = layer](GraphBuilder& b) { return both(b, layer, b.input()); })),
        3);
  }
  const std::pair<std::string, Layer> sequences[] = {
      {"linear",
       [](GraphBuilder& b, const std::string& name, ValueId x) { return b.Linear(name, x, 12); }},
      {"layer_norm",
       [](GraphBuilder& b, const std::string& name, ValueId x) { return b.LayerNorm(name, x); }},
      {"position_embedding", [](GraphBuilder& b, const std::string& name,
                                ValueId x) { return b.PositionEmbedding(name, x); }},
  };
  for (const auto& [what, layer] : sequences) {
    GraphBuilder b = GraphBuilder::ForTokens(7, 19);
    const ValueId x = both(b, layer, b.Embedding("tok", b.input(), 12));
    b.SoftmaxCrossEntropy(b.Linear("head", x, 5));
    Compare(what, WithSharedParameters(*std::move(b).Build()), 3);
  }
}

TEST(Loss, WithLabelSmoothingAgreesWithTheReference) {
  for (const int64_t classes : {2, 10, 37}) {
    GraphBuilder b({9});
    b.SoftmaxCrossEntropy(b.Linear("fc", b.input(), classes), 0.2);
    Compare(absl::StrCat("label smoothing over ", classes), *std::move(b).Build(), 5);
  }
}

TEST(Pooling, AgreesWithTheReference) {
  const PoolOptions cases[] = {
      {.kernel = 2},
      {.kernel = 3},
      {.kernel = 3, .stride = 2, .padding = 1},
      {.kernel = 2, .stride = 1},
      {.kernel = 4, .stride = 3, .padding = 2},
      {.kernel = 2, .stride = 3},
      {.kernel = 3, .stride = 2, .ceil_mode = true},
      {.kernel = 4, .stride = 3, .padding = 2, .ceil_mode = true},
      {.kernel = 3, .padding = 1, .count_padding = false},
      {.kernel = 3, .stride = 2, .padding = 1, .ceil_mode = true, .count_padding = false}};
  for (const PoolOptions& options : cases) {
    for (const int64_t channels : {3, 8, 16, 24}) {
      const layers::Conv2d conv = {.channels = channels, .kernel = 3, .padding = 1};
      const std::string what = absl::StrCat("window ", options.kernel, " of ", channels);
      Compare("max_pool " + what,
              Close({2, 9, 8},
                    [&](GraphBuilder& b) {
                      return b.MaxPool(b.Conv2d("conv", b.input(), conv), options);
                    }),
              3);
      Compare("relu, max_pool " + what,
              Close({2, 9, 8},
                    [&](GraphBuilder& b) {
                      return b.MaxPool(b.Relu(b.Conv2d("conv", b.input(), conv)), options);
                    }),
              3);
      Compare("avg_pool " + what,
              Close({2, 9, 8},
                    [&](GraphBuilder& b) {
                      return b.AvgPool(b.Conv2d("conv", b.input(), conv), options);
                    }),
              2);
      Compare("global_avg_pool",
              Close({2, 9, 8},
                    [&](GraphBuilder& b) {
                      return b.GlobalAvgPool(b.Conv2d("conv", b.input(), conv));
                    }),
              2);
    }
  }
}

TEST(Pooling, OfTheInputAgreesWithTheReference) {
  Compare("pools of plain layouts",
          Close({3, 8, 8},
                [](GraphBuilder& b) {
                  return b.AvgPool(b.MaxPool(b.input(), {.kernel = 2}), {.kernel = 2, .stride = 1});
                }),
          3);
}

TEST(BatchNorm, AgreesWithTheReference) {
  for (const int64_t channels : {1, 6, 8, 16, 20}) {
    const layers::Conv2d conv = {.channels = channels, .kernel = 3, .padding = 1};
    Compare(absl::StrCat("batch_norm of ", channels),
            Close({2, 6, 7},
                  [&](GraphBuilder& b) {
                    return b.BatchNorm("bn", b.Conv2d("conv", b.input(), conv));
                  }),
            4);
    Compare(absl::StrCat("batch_norm, relu of ", channels),
            Close({2, 6, 7},
                  [&](GraphBuilder& b) {
                    return b.Relu(b.BatchNorm("bn", b.Conv2d("conv", b.input(), conv)));
                  }),
            4);
  }
  Compare("batch_norm of the input",
          Close({3, 5, 5}, [](GraphBuilder& b) { return b.Relu(b.BatchNorm("bn", b.input())); }),
          1);
}

// Returns a graph in which layouts meet: a plain input, blocked convolutions of several widths, and
// sums of both.
Graph Residual(int64_t channels) {
  return Close({3, 8, 8}, [channels](GraphBuilder& b) {
    const layers::Conv2d conv = {.channels = channels, .kernel = 3, .padding = 1};
    ValueId x = b.Relu(b.BatchNorm("bn", b.Conv2d("conv", b.input(), conv)));
    ValueId branch = b.Relu(b.BatchNorm("bn1", b.Conv2d("conv1", x, conv)));
    branch = b.BatchNorm("bn2", b.Conv2d("conv2", branch, conv));
    x = b.Relu(b.Add(branch, x));
    const ValueId short_cut =
        b.Conv2d("down", x, {.channels = 2 * channels, .kernel = 1, .stride = 2, .bias = false});
    branch =
        b.Conv2d("conv3", x, {.channels = 2 * channels, .kernel = 3, .stride = 2, .padding = 1});
    return b.GlobalAvgPool(b.Relu(b.Add(branch, short_cut)));
  });
}

TEST(Networks, WithResidualSumsAgreeWithTheReference) {
  for (const int64_t channels : {4, 8, 12, 16}) {
    Compare(absl::StrCat("residual net of ", channels), Residual(channels), 3);
    Compare(absl::StrCat("residual blocks of ", channels), testing::Residuals(channels), 12);
  }
}

TEST(Networks, WithParallelBranchesAgreeWithTheReference) {
  // The members are whole blocks; or one fills no block, and goes last; or two fill none, so that
  // no layout of blocks holds them; or no member fills one.
  for (const std::vector<int64_t>& channels : {std::vector<int64_t>{16, 32, 16, 16},
                                               {16, 16, 24, 16},
                                               {16, 24, 16, 20},
                                               {16, 8, 8, 16},
                                               {5, 3, 6, 7}}) {
    Compare("inceptions of " + ShapeString(channels), testing::Inceptions(channels), 12);
  }
}

TEST(Networks, AgreeWithTheReferenceWithoutAnyPass) {
  Compare("residual net, no passes", Residual(12), 3, testing::kNoPasses);
  Compare("conv, relu, max_pool, no passes",
          Close({2, 8, 8},
                [](GraphBuilder& b) {
                  return b.MaxPool(b.Relu(b.Conv2d("conv", b.input(), {.channels = 6})),
                                   {.kernel = 2});
                }),
          3, testing::kNoPasses);
}

TEST(Networks, OfASumOfTheInputAndOfFlattenedBlocksAgreeWithTheReference) {
  Compare("input added to a convolution of it",
          Close({8, 6, 6},
                [](GraphBuilder& b) {
                  return b.Add(b.Conv2d("conv", b.input(), {.channels = 8, .padding = 1}),
                               b.input());
                }),
          2);
  Compare(
      "logits that are flattened blocks",
      [] {
        GraphBuilder b({2, 3, 3});
        b.SoftmaxCrossEntropy(b.Flatten(b.Conv2d("conv", b.input(), {.channels = 12})));
        return *std::move(b).Build();
      }(),
      3);
  Compare("relu after flatten",
          Close({2, 5, 5},
                [](GraphBuilder& b) {
                  return b.Relu(b.Flatten(b.Conv2d("conv", b.input(), {.channels = 20})));
                }),
          3);
}

}  // namespace
}  // namespace trainyard::engine
