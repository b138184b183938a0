// Tests that a step on the CPU gives the same bits with any number of threads if it is to be
// deterministic.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/unit/worker/engine/bf16_testing.h"
#include "tests/unit/worker/engine/engine_testing.h"
#include "worker/engine/graph/graph_builder.h"

namespace trainyard::engine {
namespace {

using testing::Compile;
using testing::TestBatch;
using testing::Values;

constexpr const char* kCpu = "cpu";

// All that a step, an evaluation and a prediction leave behind.
struct Outcome {
  testing::NamedValues state;
  Values gradients;
  Values predictions;
  double loss = 0;
};

Outcome Train(const Graph& model, int64_t rows, int threads, Precision precision,
              bool deterministic) {
  const OptimizerSpec optimizer = {.momentum = 0.9};
  const std::unique_ptr<Executable> executable = Compile(kCpu, model, optimizer,
                                                         {.max_rows = rows,
                                                          .threads = threads,
                                                          .precision = precision,
                                                          .deterministic = deterministic});
  testing::RandomizeState(3, *executable);
  Outcome outcome;
  const TestBatch batch = testing::RandomBatch(1, model, rows);
  EXPECT_TRUE(executable->Accumulate(batch.batch(), 0.5, nullptr).ok());
  // The second part, of fewer rows, adds to the sums of the first one.
  EXPECT_TRUE(executable->Accumulate(batch.Rows(0, rows * 2 / 3).batch(), 0.5, nullptr).ok());
  outcome.gradients = testing::ReadReduction(*executable);
  EXPECT_TRUE(executable->Update(0.01).ok());
  outcome.state = testing::ReadAllState(*executable);
  outcome.loss = executable->Evaluate(batch.batch())->loss_sum;
  outcome.predictions = *executable->Predict(batch.inputs);
  return outcome;
}

void ExpectSame(const Outcome& found, const Outcome& expected) {
  EXPECT_EQ(found.gradients, expected.gradients);
  EXPECT_EQ(found.state, expected.state);
  EXPECT_EQ(found.predictions, expected.predictions);
  EXPECT_EQ(found.loss, expected.loss);
}

void ExpectSameWithAnyThreads(const std::string& what, const Graph& model, int64_t rows) {
  for (const Precision precision : {Precision::kF32, Precision::kBf16}) {
    if (precision == Precision::kBf16 && !testing::Has(precision)) continue;
    const Outcome expected = Train(model, rows, 1, precision, true);
    for (const int threads : {2, 3}) {
      SCOPED_TRACE(absl::StrCat(what, ", ", PrecisionName(precision), ", ", threads, " threads"));
      ExpectSame(Train(model, rows, threads, precision, true), expected);
    }
  }
}

Graph Classifier(Shape input, const std::function<ValueId(GraphBuilder&)>& layers) {
  GraphBuilder builder(std::move(input));
  builder.SoftmaxCrossEntropy(builder.Linear("fc", builder.Flatten(layers(builder)), 7));
  absl::StatusOr<Graph> graph = std::move(builder).Build();
  EXPECT_TRUE(graph.ok()) << graph.status();
  return *std::move(graph);
}

TEST(Threads, ConvolutionsGiveTheSameBits) {
  struct Convolution {
    Shape input;
    layers::Conv2d options;
    int64_t rows;
  };
  // The work of each is large enough for several parts.
  const Convolution cases[] = {
      {{3, 32, 32}, {.channels = 32, .kernel = 3, .padding = 1}, 13},
      {{3, 40, 40}, {.channels = 24, .kernel = 7, .stride = 2, .padding = 3}, 9},
      {{48, 15, 15}, {.channels = 80, .kernel = 1, .bias = false}, 24},
      {{64, 16, 16}, {.channels = 96, .kernel = 1, .stride = 2}, 24},
      {{32, 17, 17}, {.channels = 40, .kernel = 5, .stride = 2, .padding = 2}, 21},
      {{64, 12, 12}, {.channels = 64, .kernel = 3, .padding = 1, .groups = 4}, 30},
      {{32, 14, 14}, {.channels = 32, .kernel = 3, .padding = 2, .dilation = 2}, 16},
      // These are filtered minimally: by our own kernels, and by those of oneDNN.
      {{32, 14, 14}, {.channels = 48, .kernel = 3, .padding = 1}, 23},
      {{16, 28, 28}, {.channels = 16, .kernel = 3, .padding = 1, .bias = false}, 16},
      {{208, 16, 16}, {.channels = 192, .kernel = 3, .padding = 1}, 32},
  };
  for (const Convolution& c : cases) {
    const std::string what = absl::StrCat("conv2d ", ShapeString(c.input), " to ",
                                          c.options.channels, ", kernel ", c.options.kernel);
    // The convolution is the second of two, so its input has a gradient and a blocked layout.
    ExpectSameWithAnyThreads(
        what,
        Classifier(c.input,
                   [&](GraphBuilder& b) {
                     const ValueId x =
                         b.Conv2d("first", b.input(), {.channels = c.input[0], .kernel = 1});
                     return b.MaxPool(b.Relu(b.Conv2d("conv", b.Tanh(x), c.options)),
                                      {.kernel = 2, .stride = 2});
                   }),
        c.rows);
  }
}

TEST(Threads, LinearLayersGiveTheSameBits) {
  for (const int64_t rows : {5, 64, 700}) {
    ExpectSameWithAnyThreads(absl::StrCat("mlp, ", rows, " rows"),
                             Classifier({300},
                                        [](GraphBuilder& b) {
                                          ValueId x = b.input();
                                          x = b.Linear("fc1", x, 520);
                                          x = b.Relu(x);
                                          return b.Linear("fc2", x, 270);
                                        }),
                             rows);
  }
  // The input of the second is flattened from blocks.
  ExpectSameWithAnyThreads("flattened",
                           Classifier({3, 12, 12},
                                      [](GraphBuilder& b) {
                                        const ValueId x =
                                            b.Conv2d("conv", b.input(),
                                                     {.channels = 32, .kernel = 3, .padding = 1});
                                        return b.Linear("fc1", b.Flatten(b.Relu(x)), 200);
                                      }),
                           300);
}

TEST(Threads, MergedSiblingsAndResidualsGiveTheSameBits) {
  ExpectSameWithAnyThreads("inceptions", testing::Inceptions({32, 48, 16, 64}), 40);
  ExpectSameWithAnyThreads("residuals", testing::Residuals(32), 40);
}

TEST(Threads, SequencesGiveTheSameBits) {
  GraphBuilder b = GraphBuilder::ForTokens(48, 80);
  ValueId x = b.PositionEmbedding("pos", b.Embedding("tok", b.input(), 128));
  ValueId h = b.Linear("qkv", b.LayerNorm("ln1", x), 384);
  x = b.Add(x, b.Linear("proj", b.Attention(h, 4), 128));
  h = b.Gelu(b.TransposedLinear("up", b.LayerNorm("ln2", x), 512));
  x = b.LayerNorm("ln3", b.Add(x, b.Linear("down", h, 128)));
  b.SoftmaxCrossEntropy(b.TiedLinear("head", x, "tok"));
  ExpectSameWithAnyThreads("transformer", *std::move(b).Build(), 17);
}

// Otherwise the equal bits above would prove little.
TEST(Threads, OtherStepsMayDependOnThem) {
  const Graph model = Classifier({32, 16, 16}, [](GraphBuilder& b) {
    const ValueId x = b.Conv2d("first", b.input(), {.channels = 32, .kernel = 1});
    return b.Conv2d("conv", b.Tanh(x), {.channels = 32, .kernel = 3, .padding = 1});
  });
  EXPECT_NE(Train(model, 32, 2, Precision::kF32, false).gradients,
            Train(model, 32, 1, Precision::kF32, false).gradients);
}

}  // namespace
}  // namespace trainyard::engine
