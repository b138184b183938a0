#include "worker/engine/graph/recompute.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "absl/strings/match.h"
#include "tests/unit/worker/engine/engine_testing.h"
#include "worker/engine/graph/graph_builder.h"
#include "worker/engine/graph/passes.h"
#include "worker/engine/models/models.h"

namespace trainyard::engine {
namespace {

constexpr PassOptions kRecompute = {.recompute = true};

Graph SmallResnet20() {
  return *BuildResnet({.input = {3, 16, 16}, .depth = 20, .stem = Stem::kCifar, .classes = 10});
}

Graph SmallVgg() {
  return *BuildVgg(
      {.input = {3, 32, 32}, .depth = 11, .batch_norm = true, .classes = 4, .dropout = 0.3});
}

// Pre-norm blocks with dropout, as GPT-2's.
Graph Transformer(int blocks) {
  GraphBuilder b = GraphBuilder::ForTokens(12, 7);
  ValueId x = b.PositionEmbedding("pos", b.Embedding("tok", b.input(), 8));
  for (int i = 0; i < blocks; ++i) {
    const std::string name = "h" + std::to_string(i);
    ValueId y = b.Attention(b.Linear(name + ".qkv", b.LayerNorm(name + ".ln1", x), 24), 2);
    x = b.Add(x, b.Dropout(b.Linear(name + ".proj", y, 8), 0.2));
    y = b.Gelu(b.Linear(name + ".fc", b.LayerNorm(name + ".ln2", x), 32), {.tanh = true});
    x = b.Add(x, b.Dropout(b.Linear(name + ".out", y, 8), 0.2));
  }
  b.SoftmaxCrossEntropy(b.Linear("head", b.LayerNorm("ln", x), 7));
  absl::StatusOr<Graph> graph = std::move(b).Build();
  EXPECT_TRUE(graph.ok()) << graph.status();
  return *std::move(graph);
}

struct RecomputeNumbers {
  testing::NamedValues gradients, state;
  std::vector<StepMetrics> metrics;
};

RecomputeNumbers RunSteps(const std::string& backend, const Graph& model, const PassOptions& passes,
                          int64_t rows) {
  const std::unique_ptr<Executable> executable = testing::Compile(
      backend, model, {.momentum = 0.9}, {.max_rows = rows, .threads = 2, .passes = passes});
  testing::RandomizeState(5, *executable);
  RecomputeNumbers numbers;
  for (uint64_t step = 0; step < 2; ++step) {
    const testing::TestBatch batch = testing::RandomBatch(step, model, rows);
    Batch positioned = batch.batch();
    positioned.position = {.seed = 3, .step = static_cast<int64_t>(step), .first_row = 2};
    EXPECT_TRUE(executable->Accumulate(positioned, 1, nullptr).ok());
    numbers.gradients = testing::Gradients(model, *executable);
    numbers.metrics.push_back(*executable->Update(0.05));
  }
  numbers.state = testing::ReadAllState(*executable);
  return numbers;
}

void ExpectSameBits(const std::string& backend, const Graph& model, int64_t rows) {
  const RecomputeNumbers kept = RunSteps(backend, model, {}, rows);
  const RecomputeNumbers again = RunSteps(backend, model, kRecompute, rows);
  EXPECT_EQ(again.gradients, kept.gradients);
  EXPECT_EQ(again.state, kept.state);
  for (size_t i = 0; i < kept.metrics.size(); ++i) {
    EXPECT_EQ(again.metrics[i].loss, kept.metrics[i].loss);
    EXPECT_EQ(again.metrics[i].accuracy, kept.metrics[i].accuracy);
  }
}

int64_t Clones(const StepGraph& step) {
  return std::count_if(step.graph.nodes.begin(), step.graph.nodes.end(), [&](const Node& node) {
    return absl::EndsWith(
        step.graph.value(node.outputs[0] == kNoValue ? node.outputs[1] : node.outputs[0]).name,
        ".again");
  });
}

int64_t ActivationBytes(const std::string& backend, const Graph& model, const PassOptions& passes,
                        int64_t rows) {
  return testing::Compile(backend, model, {}, {.max_rows = rows, .passes = passes})
      ->memory_plan()
      .activations;
}

class RecomputeOn : public ::testing::TestWithParam<std::string> {};

TEST_P(RecomputeOn, GivesTheSameBitsForAResidualNet) {
  ExpectSameBits(GetParam(), SmallResnet20(), 3);
}

TEST_P(RecomputeOn, GivesTheSameBitsForAWideResnet) {
  ExpectSameBits(GetParam(),
                 *BuildWideResnet({.input = {3, 8, 8}, .depth = 16, .width = 1, .classes = 5}), 3);
}

TEST_P(RecomputeOn, DrawsTheSameDropout) {
  // A pool of 7 x 7 makes the classifier of a whole VGG too large for the reference.
  GraphBuilder b({3, 8, 8});
  ValueId x = b.input();
  for (int i = 0; i < 8; ++i) {
    const std::string name = "conv" + std::to_string(i);
    x = b.Dropout(
        b.Relu(b.BatchNorm("bn" + name, b.Conv2d(name, x, {.channels = 5, .padding = 1}))), 0.3);
  }
  x = b.Relu(b.Linear("fc1", b.Flatten(b.MaxPool(x, {.kernel = 2})), 16));
  b.SoftmaxCrossEntropy(b.Linear("fc2", b.Dropout(x, 0.5), 4));
  const Graph model = *std::move(b).Build();
  EXPECT_GT(Clones(BuildTrainingStep(model, {kRecompute, false})), 4);
  ExpectSameBits(GetParam(), model, 4);
}

TEST_P(RecomputeOn, GivesTheSameBitsForATransformer) {
  const Graph model = Transformer(4);
  EXPECT_GT(Clones(BuildTrainingStep(model, {kRecompute, false})), 8);
  ExpectSameBits(GetParam(), model, 3);
}

INSTANTIATE_TEST_SUITE_P(Backends, RecomputeOn, ::testing::ValuesIn(testing::TestedAndReference()));

TEST(Recompute, GivesTheSameBitsForAVggWithDropout) {
  ExpectSameBits(testing::TestedBackend(), SmallVgg(), 2);
}

TEST(Recompute, KeepsTheNumbersWhateverOtherPassesRun) {
  const Graph model = Transformer(3);
  const RecomputeNumbers plain = RunSteps("reference", model, {}, 3);
  for (const Pass& pass : kPasses) {
    PassOptions passes = kRecompute;
    passes.*pass.option = false;
    EXPECT_EQ(RunSteps("reference", model, passes, 3).gradients, plain.gradients) << pass.name;
  }
}

TEST(Recompute, HalvesTheActivationsOfResidualNets) {
  for (const int64_t depth : {20, 56}) {
    const Graph model =
        *BuildResnet({.input = {3, 32, 32}, .depth = depth, .stem = Stem::kCifar, .classes = 10});
    for (const std::string& backend : testing::TestedAndReference()) {
      PassOptions keeps_all;
      keeps_all.recompute_norms = false;
      const auto kept = static_cast<double>(ActivationBytes(backend, model, keeps_all, 16));
      const auto again = static_cast<double>(ActivationBytes(backend, model, kRecompute, 16));
      EXPECT_LE(again / kept, 0.5) << backend << ", depth " << depth;
    }
  }
}

TEST(Recompute, NeverNeedsMoreThanWithout) {
  for (const Graph& model :
       {*BuildMlp({.input = {8}, .hidden = {6}}), *BuildConvnet({.input = {1, 8, 8}}),
        Transformer(1),
        *BuildGooglenet(
            {.input = {3, 32, 32}, .stem = Stem::kCifar, .classes = 10, .dropout = 0.2})}) {
    EXPECT_LE(ActivationBytes("reference", model, kRecompute, 8),
              ActivationBytes("reference", model, {}, 8));
  }
}

TEST(Recompute, FoldsTheStatisticsOfEachLayerOnce) {
  const StepGraph step = BuildTrainingStep(SmallResnet20(), {kRecompute, false});
  EXPECT_GT(Clones(step), 10);
  std::set<ValueId> folded;
  for (const BatchStatistics& statistics : step.statistics) {
    EXPECT_FALSE(absl::EndsWith(step.graph.value(statistics.mean).name, ".again"));
    EXPECT_TRUE(folded.insert(statistics.running_mean).second);
  }
  EXPECT_EQ(LayOutReduction(step).size,
            LayOutReduction(BuildTrainingStep(SmallResnet20(), {})).size);
}

TEST(Recompute, LeavesAnEvaluationAlone) {
  const Graph model = SmallResnet20();
  EXPECT_EQ(BuildEvaluationStep(model, {kRecompute, false}).graph.nodes.size(),
            BuildEvaluationStep(model, {}).graph.nodes.size());
}

}  // namespace
}  // namespace trainyard::engine
