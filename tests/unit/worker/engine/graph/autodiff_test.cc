// Compares every gradient with central differences, in double precision on the reference backend.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "tests/unit/worker/engine/engine_testing.h"
#include "worker/engine/graph/graph_builder.h"

namespace trainyard::engine {
namespace {

using testing::Compile;
using testing::TestBatch;
using testing::Values;

// Returns the loss in training mode. It leaves nothing in the reduction.
double Loss(Executable& executable, const TestBatch& batch) {
  EXPECT_TRUE(executable.Accumulate(batch.batch(), 1, nullptr).ok());
  const double loss = executable.Inspect()->loss;
  std::fill(executable.reduction().begin(), executable.reduction().end(), 0.0f);
  return loss;
}

// (loss(x + step) - loss(x - step)) / 2 step for one float, by the values that it can take.
double Difference(float& at, const std::function<double()>& loss) {
  const float original = at;
  const float step = 1.0f / 4096;
  at = original + step;
  const double above = static_cast<double>(at);
  const double loss_above = loss();
  at = original - step;
  const double below = static_cast<double>(at);
  const double loss_below = loss();
  at = original;
  return (loss_above - loss_below) / (above - below);
}

void CheckGradients(const std::string& what, const Graph& model, int64_t rows) {
  SCOPED_TRACE(what);
  const std::unique_ptr<Executable> executable =
      Compile("reference_f64", model, {}, {.max_rows = rows, .inspect = true});
  testing::RandomizeState(7, *executable);
  TestBatch batch = testing::RandomBatch(11, model, rows);
  ASSERT_TRUE(executable->Accumulate(batch.batch(), 1, nullptr).ok());
  const testing::NamedValues gradients = testing::Gradients(model, *executable);
  const std::vector<double> input_gradient = executable->Inspect()->input_gradient;
  // The tolerance covers third-order terms of the difference, and the rounding of gradients to
  // floats.
  constexpr double kTolerance = 3e-6;
  for (const auto& [key, gradient] : gradients) {
    const std::string& name = key;  // clang 14 does not let a lambda capture `key`
    Values values = testing::ReadState(*executable, name);
    for (size_t i = 0; i < values.size(); ++i) {
      const double difference = Difference(values[i], [&] {
        testing::WriteState(*executable, name, values);
        return Loss(*executable, batch);
      });
      ASSERT_NEAR(gradient[i], difference, kTolerance) << name << " element " << i;
    }
    testing::WriteState(*executable, name, values);
  }
  for (size_t i = 0; i < input_gradient.size(); ++i) {
    const double difference = Difference(batch.inputs[i], [&] { return Loss(*executable, batch); });
    ASSERT_NEAR(input_gradient[i], difference, kTolerance) << "input element " << i;
  }
}

// A graph of `layers` over the input, closed by a linear layer and the loss.
Graph Close(Shape input, const std::function<ValueId(GraphBuilder&)>& layers) {
  GraphBuilder builder(std::move(input));
  ValueId x = layers(builder);
  builder.SoftmaxCrossEntropy(builder.Linear("fc", builder.Flatten(x), 3));
  absl::StatusOr<Graph> graph = std::move(builder).Build();
  EXPECT_TRUE(graph.ok()) << graph.status();
  return *std::move(graph);
}

TEST(Autodiff, GradientsOfConvolutionsAreRight) {
  const layers::Conv2d cases[] = {
      {.channels = 3, .kernel = 3, .padding = 1},
      {.channels = 2, .kernel = 3, .stride = 2, .padding = 1, .bias = false},
      {.channels = 4, .kernel = 2, .stride = 3, .groups = 2},
      {.channels = 2, .kernel = 3, .padding = 2, .dilation = 2},
      {.channels = 3, .kernel = 1, .stride = 2},
  };
  for (const layers::Conv2d& options : cases) {
    CheckGradients(
        "conv2d",
        Close({2, 5, 6}, [&](GraphBuilder& b) { return b.Conv2d("conv", b.input(), options); }), 2);
  }
}

TEST(Autodiff, GradientsOfLinearLayersAndTanhAreRight) {
  CheckGradients(
      "linear, tanh",
      Close({6}, [](GraphBuilder& b) { return b.Tanh(b.Linear("hidden", b.input(), 5)); }), 3);
  CheckGradients(
      "linear without bias",
      Close({6}, [](GraphBuilder& b) { return b.Linear("hidden", b.input(), 5, false); }), 3);
}

TEST(Autodiff, GradientsOfTransposedLinearLayersAreRight) {
  CheckGradients("of features",
                 Close({5},
                       [](GraphBuilder& b) {
                         const ValueId x = b.Tanh(b.TransposedLinear("first", b.input(), 4));
                         return b.Relu(b.TransposedLinear("second", x, 3));
                       }),
                 3);
}

TEST(Autodiff, GradientsOfSigmoidAndGeluAreRight) {
  const auto hidden = [](GraphBuilder& b) { return b.Linear("hidden", b.input(), 5); };
  CheckGradients("sigmoid", Close({6}, [&](GraphBuilder& b) { return b.Sigmoid(hidden(b)); }), 3);
  CheckGradients("gelu", Close({6}, [&](GraphBuilder& b) { return b.Gelu(hidden(b)); }), 3);
  CheckGradients("gelu by tanh",
                 Close({6}, [&](GraphBuilder& b) { return b.Gelu(hidden(b), {.tanh = true}); }), 3);
}

TEST(Autodiff, GradientsOfASmoothedLossAreRight) {
  GraphBuilder b({6});
  b.SoftmaxCrossEntropy(b.Linear("fc", b.Tanh(b.input()), 4), 0.1);
  CheckGradients("label smoothing", *std::move(b).Build(), 3);
}

TEST(Autodiff, GradientsOfBatchNormAreRight) {
  CheckGradients("batch_norm",
                 Close({2, 3, 4},
                       [](GraphBuilder& b) {
                         return b.BatchNorm("bn", b.Conv2d("conv", b.input(), {.channels = 3}));
                       }),
                 3);
  CheckGradients("batch_norm of the input",
                 Close({2, 3, 4}, [](GraphBuilder& b) { return b.BatchNorm("bn", b.input()); }), 2);
}

TEST(Autodiff, GradientsOfReluAreRightWhereverItIsFused) {
  CheckGradients(
      "conv, relu",
      Close({2, 4, 4},
            [](GraphBuilder& b) { return b.Relu(b.Conv2d("conv", b.input(), {.channels = 3})); }),
      2);
  CheckGradients(
      "linear, relu",
      Close({6}, [](GraphBuilder& b) { return b.Relu(b.Linear("hidden", b.input(), 5)); }), 3);
  CheckGradients(
      "batch_norm, relu",
      Close({2, 4, 4}, [](GraphBuilder& b) { return b.Relu(b.BatchNorm("bn", b.input())); }), 3);
  CheckGradients("relu of the input", Close({7}, [](GraphBuilder& b) { return b.Relu(b.input()); }),
                 3);
}

TEST(Autodiff, GradientsOfPoolingAreRight) {
  const PoolOptions cases[] = {
      {.kernel = 2},
      {.kernel = 3, .stride = 2, .padding = 1},
      {.kernel = 3, .stride = 1},
      {.kernel = 2, .stride = 3},
      {.kernel = 3, .stride = 2, .ceil_mode = true},
      {.kernel = 3, .stride = 2, .padding = 1, .ceil_mode = true, .count_padding = false}};
  for (const PoolOptions& options : cases) {
    CheckGradients("max_pool",
                   Close({2, 6, 5}, [&](GraphBuilder& b) { return b.MaxPool(b.input(), options); }),
                   2);
    CheckGradients(
        "relu, max_pool",
        Close({2, 6, 5}, [&](GraphBuilder& b) { return b.MaxPool(b.Relu(b.input()), options); }),
        2);
    CheckGradients("avg_pool",
                   Close({2, 6, 5}, [&](GraphBuilder& b) { return b.AvgPool(b.input(), options); }),
                   2);
  }
  CheckGradients("global_avg_pool",
                 Close({3, 4, 5}, [](GraphBuilder& b) { return b.GlobalAvgPool(b.input()); }), 2);
}

TEST(Autodiff, GradientsOfConcatAreRight) {
  CheckGradients("channels, one of them twice",
                 Close({2, 3, 4},
                       [](GraphBuilder& b) {
                         const ValueId x =
                             b.Conv2d("conv", b.input(), {.channels = 3, .padding = 1});
                         return b.Tanh(b.Concat({x, b.input(), x}));
                       }),
                 2);
  CheckGradients("features",
                 Close({5},
                       [](GraphBuilder& b) {
                         return b.Tanh(b.Concat({b.Linear("a", b.input(), 2), b.input()}));
                       }),
                 2);
}

TEST(Autodiff, GradientsOfLrnAreRight) {
  const layers::Lrn cases[] = {{.size = 5, .alpha = 1, .k = 2},
                               {.size = 4, .alpha = 0.5, .beta = 0.6},
                               {.size = 1, .alpha = 2, .beta = 1.5},
                               {.size = 9, .alpha = 1}};
  for (const layers::Lrn& options : cases) {
    CheckGradients("lrn",
                   Close({6, 2, 3}, [&](GraphBuilder& b) { return b.Lrn(b.input(), options); }), 2);
  }
}

TEST(Autodiff, GradientsOfGroupNormAreRight) {
  for (const int64_t groups : {1, 2, 6}) {
    CheckGradients("group_norm",
                   Close({6, 2, 3},
                         [&](GraphBuilder& b) {
                           const ValueId x = b.Tanh(b.input());
                           return b.Layer("norm", x, layers::GroupNorm{.groups = groups});
                         }),
                   2);
  }
}

TEST(Autodiff, GradientsOfUpsampleAreRight) {
  CheckGradients(
      "upsample",
      Close({2, 2, 3},
            [](GraphBuilder& b) {
              return b.Tanh(b.Layer("", b.Tanh(b.input()), layers::Upsample{.scale = 2}));
            }),
      2);
}

TEST(Autodiff, GradientsOfDropoutAreRight) {
  CheckGradients("dropout",
                 Close({7},
                       [](GraphBuilder& b) {
                         const ValueId x = b.Tanh(b.Dropout(b.input(), 0.5));
                         return b.Dropout(b.Linear("hidden", x, 9), 0.25);
                       }),
                 3);
}

// Tokens, embedded, `layers` over [5, 6], closed by a linear layer and the loss at every position.
Graph CloseSequence(const std::function<ValueId(GraphBuilder&, ValueId)>& layers) {
  GraphBuilder b = GraphBuilder::ForTokens(5, 7);
  const ValueId x = layers(b, b.Embedding("tok", b.input(), 6));
  b.SoftmaxCrossEntropy(b.Linear("head", x, 7, false));
  absl::StatusOr<Graph> graph = std::move(b).Build();
  EXPECT_TRUE(graph.ok()) << graph.status();
  return *std::move(graph);
}

TEST(Autodiff, GradientsOfEmbeddingsAreRight) {
  CheckGradients("embedding", CloseSequence([](GraphBuilder&, ValueId x) { return x; }), 3);
  CheckGradients("positions", CloseSequence([](GraphBuilder& b, ValueId x) {
                   return b.Tanh(b.PositionEmbedding("pos", x));
                 }),
                 2);
  CheckGradients("more positions than used", CloseSequence([](GraphBuilder& b, ValueId x) {
                   return b.PositionEmbedding("pos", x, 8);
                 }),
                 2);
}

TEST(Autodiff, GradientsOfLayerNormAreRight) {
  CheckGradients("at every position", CloseSequence([](GraphBuilder& b, ValueId x) {
                   return b.LayerNorm("ln", b.Linear("linear", x, 4));
                 }),
                 2);
  CheckGradients("of features",
                 Close({5}, [](GraphBuilder& b) { return b.LayerNorm("ln", b.input()); }), 3);
}

TEST(Autodiff, GradientsOfAttentionAreRight) {
  for (const int64_t heads : {1, 2, 3}) {
    CheckGradients("attention", CloseSequence([heads](GraphBuilder& b, ValueId x) {
                     const ValueId y = b.Attention(b.Linear("qkv", x, 18), heads);
                     return b.Add(x, b.Gelu(b.Linear("proj", y, 6)));
                   }),
                   2);
  }
}

TEST(Autodiff, AParameterWithTwoUsesGetsTheSumOfItsGradients) {
  const Graph model = [] {
    GraphBuilder b = GraphBuilder::ForTokens(4, 7);
    const ValueId x = b.LayerNorm("ln", b.Embedding("tok", b.input(), 5));
    b.SoftmaxCrossEntropy(b.TiedLinear("head", b.Linear("hidden", x, 5), "tok"));
    return *std::move(b).Build();
  }();
  CheckGradients("tied embedding", model, 3);
  // The gradient has one place in the reduction, the last one, since its second part comes at the
  // very end of backward.
  const StepGraph step = BuildTrainingStep(model, {});
  ASSERT_EQ(step.parameter_gradients.size(), 5u);
  EXPECT_EQ(step.graph.value(step.parameter_gradients.back()).name, "grad.tok.weight");
}

TEST(Autodiff, GradientsOfFlattenedSequencesAreRight) {
  GraphBuilder b = GraphBuilder::ForTokens(4, 3);
  const ValueId x = b.Tanh(b.Embedding("tok", b.input(), 2));
  b.SoftmaxCrossEntropy(b.Linear("fc", b.Flatten(x), 3));
  CheckGradients("flatten", *std::move(b).Build(), 3);
}

TEST(Autodiff, AValueWithSeveralUsesGetsTheSumOfTheirGradients) {
  CheckGradients("a residual block",
                 Close({2, 4, 4},
                       [](GraphBuilder& b) {
                         const ValueId stem =
                             b.Conv2d("stem", b.input(), {.channels = 3, .padding = 1});
                         const ValueId branch =
                             b.Conv2d("branch", b.Tanh(stem), {.channels = 3, .padding = 1});
                         return b.Tanh(b.Add(branch, stem));
                       }),
                 2);
  CheckGradients("three uses",
                 Close({5},
                       [](GraphBuilder& b) {
                         const ValueId x = b.Tanh(b.Linear("hidden", b.input(), 5));
                         return b.Add(b.Add(x, b.Tanh(x)), x);
                       }),
                 2);
  CheckGradients("a sum of one value with itself",
                 Close({5},
                       [](GraphBuilder& b) {
                         const ValueId x = b.Linear("hidden", b.input(), 4);
                         return b.Add(x, x);
                       }),
                 2);
}

TEST(Autodiff, TheWeightOfTheBatchScalesItsGradients) {
  const Graph model = Close({6}, [](GraphBuilder& b) { return b.Tanh(b.input()); });
  const std::unique_ptr<Executable> executable =
      Compile("reference_f64", model, {}, {.max_rows = 4});
  testing::RandomizeState(1, *executable);
  const TestBatch batch = testing::RandomBatch(2, model, 4);
  ASSERT_TRUE(executable->Accumulate(batch.batch(), 1, nullptr).ok());
  testing::NamedValues whole = testing::Gradients(model, *executable);
  ASSERT_TRUE(executable->Update(0).ok());
  ASSERT_TRUE(executable->Accumulate(batch.batch(), 0.25, nullptr).ok());
  for (auto& [name, values] : whole) {
    for (float& value : values) {
      value *= 0.25f;
    }
  }
  testing::ExpectNear(testing::Gradients(model, *executable), whole, 1e-7);
}

}  // namespace
}  // namespace trainyard::engine
