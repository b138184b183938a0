// Tests that the stages of a pipeline together give the results of the whole model: loss,
// gradients, statistics and evaluations. Also tests that slots keep the values of their microbatch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <utility>

#include "tests/unit/worker/engine/engine_testing.h"
#include "worker/engine/graph/graph_builder.h"
#include "worker/engine/graph/split.h"
#include "worker/engine/make_backend.h"
#include "worker/engine/models/models.h"

namespace trainyard::engine {
namespace {

using testing::Compile;
using ::testing::HasSubstr;
using testing::NamedValues;
using testing::TestBatch;

// A stack of layers with what the other models lack: dropout and local normalisation.
Graph Stack() {
  GraphBuilder b({3, 10, 10});
  ValueId x = b.Lrn(b.Relu(b.Conv2d("conv1", b.input(), {.channels = 6, .padding = 1})), {});
  x = b.AvgPool(b.Tanh(b.Conv2d("conv2", x, {.channels = 4})), {});
  x = b.Dropout(b.Gelu(b.Linear("fc1", b.Flatten(x), 12)), 0.3);
  b.SoftmaxCrossEntropy(b.Linear("fc2", x, 5), 0.1);
  return *std::move(b).Build();
}

// Sequences, whose values at a cut have an odd number of elements, and the logits are the last of
// them.
Graph Sentences() {
  GraphBuilder b = GraphBuilder::ForTokens(5, 11);
  ValueId x = b.PositionEmbedding("position", b.Embedding("token", b.input(), 6));
  x = b.Add(x, b.Attention(b.Linear("qkv", b.LayerNorm("norm1", x), 18), 2));
  x = b.Gelu(b.Linear("mlp", b.Dropout(x, 0.2), 7));
  b.SoftmaxCrossEntropy(b.Linear("head", x, 9));
  return *std::move(b).Build();
}

Graph ModelOf(const std::string& name) {
  if (name == "convnet")
    return *BuildConvnet({.input = {2, 8, 8}, .channels = {4, 16}, .classes = 5});
  if (name == "mlp") return *BuildMlp({.input = {1, 4, 4}, .hidden = {9, 7}, .classes = 6});
  if (name == "resnet") {
    return *BuildResnet({.input = {3, 8, 8}, .depth = 20, .stem = Stem::kCifar, .classes = 4});
  }
  if (name == "sentences") return Sentences();
  if (name == "inceptions") return testing::Inceptions({16, 8, 8, 16});
  return Stack();
}

// A model in stages, in one process. Values that cross between stages are copied.
class Chain {
 public:
  Chain(const std::string& backend, const std::vector<Graph>& graphs, const Executable& whole,
        CompileOptions options) {
    for (const Graph& graph : graphs) {
      stages_.push_back(Compile(backend, graph, {.momentum = 0.9}, options));
      const auto plan = (*MakeBackend(backend))->Plan(graph, {.momentum = 0.9}, options);
      EXPECT_TRUE(plan.ok()) << plan.status();
      options.stage_input = plan->stage_output;
      for (const StateTensor& tensor : stages_.back()->state()) {
        testing::WriteState(*stages_.back(), tensor.name, testing::ReadState(whole, tensor.name));
      }
    }
  }

  void Forward(const TestBatch& batch, const Batch& rows, int slot) {
    const auto count = static_cast<int64_t>(batch.labels.size()) / batch.labels_per_row;
    for (size_t s = 0; s < stages_.size(); ++s) {
      const absl::Status status = stages_[s]->pipeline_stage()->Forward(rows, count, slot);
      ASSERT_TRUE(status.ok()) << status;
      if (s + 1 == stages_.size()) return;
      const auto from = stages_[s]->pipeline_stage()->boundary(slot, count).outputs;
      const auto to = stages_[s + 1]->pipeline_stage()->boundary(slot, count).inputs;
      testing::CopyBoundary(*stages_[s], from, *stages_[s + 1], to);
    }
  }

  void Backward(const TestBatch& batch, const Batch& rows, int slot, double weight) {
    const auto count = static_cast<int64_t>(batch.labels.size()) / batch.labels_per_row;
    for (size_t s = stages_.size(); s-- > 0;) {
      int64_t ready = 0;
      const absl::Status status = stages_[s]->pipeline_stage()->Backward(
          rows, count, slot, weight, [&](int64_t offset, int64_t size) {
            EXPECT_EQ(offset, ready);
            ready = offset + size;
          });
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(ready, static_cast<int64_t>(stages_[s]->reduction().size()));
      if (s == 0) return;
      const auto from = stages_[s]->pipeline_stage()->boundary(slot, count).input_gradients;
      const auto to = stages_[s - 1]->pipeline_stage()->boundary(slot, count).output_gradients;
      testing::CopyBoundary(*stages_[s], from, *stages_[s - 1], to);
    }
  }

  Evaluation Evaluate(const TestBatch& batch) {
    const auto count = static_cast<int64_t>(batch.labels.size()) / batch.labels_per_row;
    for (size_t s = 0;; ++s) {
      const absl::StatusOr<Evaluation> result =
          stages_[s]->pipeline_stage()->EvaluateStage(batch.batch(), count);
      EXPECT_TRUE(result.ok()) << result.status();
      if (s + 1 == stages_.size()) return *result;
      const auto from = stages_[s]->pipeline_stage()->boundary(0, count).outputs;
      const auto to = stages_[s + 1]->pipeline_stage()->boundary(0, count).inputs;
      testing::CopyBoundary(*stages_[s], from, *stages_[s + 1], to);
    }
  }

  // The last stage's.
  StepMetrics Update(double lr) {
    StepMetrics metrics;
    for (const auto& stage : stages_) {
      const absl::StatusOr<StepMetrics> updated = stage->Update(lr);
      EXPECT_TRUE(updated.ok()) << updated.status();
      metrics = *updated;
    }
    return metrics;
  }

  NamedValues State() const {
    NamedValues all;
    for (const auto& stage : stages_) all.merge(testing::ReadAllState(*stage));
    return all;
  }

  Executable& stage(size_t s) { return *stages_[s]; }

 private:
  std::vector<std::unique_ptr<Executable>> stages_;
};

Batch Positioned(const TestBatch& batch, int64_t first_row) {
  Batch rows = batch.batch();
  rows.position = {7, 3, first_row};
  return rows;
}

class Stages : public ::testing::TestWithParam<std::pair<std::string, std::string>> {
 protected:
  const std::string backend_ = GetParam().first;
  const Graph model_ = ModelOf(GetParam().second);
  // Values that cross between stages are floats, so f64 is rounded only there. On a GPU some sums
  // are taken elsewhere if a cut separates what would be one kernel.
  const double tolerance_ = backend_ == "cpu"                               ? 0
                            : backend_ == "reference" || backend_ == "cuda" ? 1e-5
                                                                            : 2e-6;
};

// Makes two updates of two microbatches each, cut before each possible layer; on a GPU, whose
// emulation is slow, before some of them.
TEST_P(Stages, GiveTheStateOfTheWholeModelForEveryCut) {
  const CompileOptions options = {.max_rows = 4, .threads = 2};
  CompileOptions slotted = options;
  slotted.microbatch_slots = 2;
  const TestBatch first = testing::RandomBatch(1, model_, 4);
  const TestBatch second = testing::RandomBatch(2, model_, 3);
  const auto whole = Compile(backend_, model_, {.momentum = 0.9}, options);
  const std::vector<CutPoint> cuts = PossibleCuts(model_);
  const size_t stride = backend_ == "cuda" ? 1 + cuts.size() / 8 : 1;
  for (size_t i = 0; i < cuts.size(); i += stride) {
    const CutPoint& cut = cuts[i];
    SCOPED_TRACE(cut.layer);
    testing::RandomizeState(5, *whole);
    const auto graphs = SplitModel(model_, {cut.layer});
    ASSERT_TRUE(graphs.ok()) << graphs.status();
    Chain chain(backend_, *graphs, *whole, slotted);
    for (int step = 0; step < 2; ++step) {
      ASSERT_TRUE(whole->Accumulate(Positioned(first, 0), 4.0 / 7, nullptr).ok());
      ASSERT_TRUE(whole->Accumulate(Positioned(second, 4), 3.0 / 7, nullptr).ok());
      // Both forward before any goes backward.
      chain.Forward(first, Positioned(first, 0), 1);
      chain.Forward(second, Positioned(second, 4), 0);
      chain.Backward(first, Positioned(first, 0), 1, 4.0 / 7);
      chain.Backward(second, Positioned(second, 4), 0, 3.0 / 7);
      const absl::StatusOr<StepMetrics> expected = whole->Update(0.1);
      const StepMetrics metrics = chain.Update(0.1);
      ASSERT_TRUE(expected.ok());
      EXPECT_NEAR(metrics.loss, expected->loss, tolerance_ * expected->loss);
      EXPECT_EQ(metrics.accuracy, expected->accuracy);
    }
    testing::ExpectNear(chain.State(), testing::ReadAllState(*whole), tolerance_);
    const absl::StatusOr<Evaluation> expected = whole->Evaluate(first.batch());
    const Evaluation evaluation = chain.Evaluate(first);
    EXPECT_NEAR(evaluation.loss_sum, expected->loss_sum, tolerance_ * expected->loss_sum);
    EXPECT_EQ(evaluation.correct, expected->correct);
    EXPECT_EQ(evaluation.top5, expected->top5);
    EXPECT_EQ(evaluation.rows, expected->rows);
  }
}

TEST_P(Stages, ThreeAtATimeGiveTheSame) {
  const CompileOptions options = {.max_rows = 4, .threads = 1};
  CompileOptions slotted = options;
  slotted.microbatch_slots = 1;
  const std::vector<CutPoint> cuts = PossibleCuts(model_);
  const auto graphs =
      SplitModel(model_, {cuts[cuts.size() / 3].layer, cuts[cuts.size() * 2 / 3].layer});
  ASSERT_TRUE(graphs.ok()) << graphs.status();
  const auto whole = Compile(backend_, model_, {.momentum = 0.9}, options);
  testing::RandomizeState(5, *whole);
  Chain chain(backend_, *graphs, *whole, slotted);
  const TestBatch batch = testing::RandomBatch(1, model_, 4);
  ASSERT_TRUE(whole->Accumulate(Positioned(batch, 0), 1, nullptr).ok());
  chain.Forward(batch, Positioned(batch, 0), 0);
  chain.Backward(batch, Positioned(batch, 0), 0, 1);
  ASSERT_TRUE(whole->Update(0.1).ok());
  chain.Update(0.1);
  testing::ExpectNear(chain.State(), testing::ReadAllState(*whole), tolerance_);
}

TEST_P(Stages, PlanTheirMemoryExactly) {
  const std::vector<CutPoint> cuts = PossibleCuts(model_);
  const auto graphs = SplitModel(model_, {cuts[cuts.size() / 2].layer});
  ASSERT_TRUE(graphs.ok()) << graphs.status();
  for (const Graph& graph : *graphs) {
    const CompileOptions options = {.max_rows = 4, .threads = 1, .microbatch_slots = 3};
    const int64_t before = LiveBufferBytes();
    const auto executable = Compile(backend_, graph, {}, options);
    EXPECT_EQ(executable->memory_plan().buffers(), LiveBufferBytes() - before);
    const auto plan = (*MakeBackend(backend_))->Plan(graph, {}, options);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->memory.buffers(), executable->memory_plan().buffers());
  }
}

std::vector<std::pair<std::string, std::string>> AllStages() {
  std::vector<std::pair<std::string, std::string>> all;
  for (const std::string& backend : testing::AllBackends()) {
    for (const char* model : {"convnet", "mlp", "resnet", "inceptions", "stack", "sentences"}) {
      all.emplace_back(backend, model);
    }
  }
  return all;
}

std::string NameOf(const ::testing::TestParamInfo<std::pair<std::string, std::string>>& stages) {
  return stages.param.first + "_" + stages.param.second;
}
INSTANTIATE_TEST_SUITE_P(Backends, Stages, ::testing::ValuesIn(AllStages()), NameOf);

// Three rows of an odd number of values in 16 bits end within a float. A deep network with norms
// over few values is left out, since it turns any rounding into another result.
TEST(StagesInSixteenBits, GiveTheStateOfTheWholeModel) {
  if (testing::TestedBackend() != "cuda") {
    GTEST_SKIP() << "only on a GPU values cross in the type of activations";
  }
  const CompileOptions options = {.max_rows = 3, .precision = Precision::kBf16};
  CompileOptions slotted = options;
  slotted.microbatch_slots = 1;
  for (const char* name : {"convnet", "mlp", "inceptions", "stack", "sentences"}) {
    const Graph model = ModelOf(name);
    const auto whole = Compile("cuda", model, {.momentum = 0.9}, options);
    const TestBatch batch = testing::RandomBatch(1, model, 3);
    const std::vector<CutPoint> cuts = PossibleCuts(model);
    for (size_t i = 0; i < cuts.size(); i += 1 + cuts.size() / 8) {
      SCOPED_TRACE(name + (" before " + cuts[i].layer));
      testing::RandomizeState(5, *whole);
      const auto graphs = SplitModel(model, {cuts[i].layer});
      ASSERT_TRUE(graphs.ok()) << graphs.status();
      Chain chain("cuda", *graphs, *whole, slotted);
      ASSERT_TRUE(whole->Accumulate(Positioned(batch, 0), 1, nullptr).ok());
      chain.Forward(batch, Positioned(batch, 0), 0);
      chain.Backward(batch, Positioned(batch, 0), 0, 1);
      const absl::StatusOr<StepMetrics> expected = whole->Update(0.1);
      ASSERT_TRUE(expected.ok());
      EXPECT_NEAR(chain.Update(0.1).loss, expected->loss, 1e-2 * expected->loss);
      testing::ExpectNear(chain.State(), testing::ReadAllState(*whole), 2e-2);
    }
  }
}

class Slots : public ::testing::TestWithParam<std::string> {};

TEST_P(Slots, AWholeModelWorksInThemToo) {
  const Graph model = ModelOf("convnet");
  const auto whole = Compile(GetParam(), model, {}, {.max_rows = 4});
  const auto halves = Compile(GetParam(), model, {}, {.max_rows = 4, .microbatch_slots = 1});
  testing::RandomizeState(1, *whole);
  testing::CopyState(*whole, *halves);
  const TestBatch batch = testing::RandomBatch(3, model, 4);
  ASSERT_TRUE(whole->Accumulate(batch.batch(), 1, nullptr).ok());
  ASSERT_TRUE(halves->pipeline_stage()->Forward(batch.batch(), 4, 0).ok());
  ASSERT_TRUE(halves->pipeline_stage()->Backward(batch.batch(), 4, 0, 1, nullptr).ok());
  EXPECT_EQ(testing::ReadReduction(*halves), testing::ReadReduction(*whole));
}

TEST_P(Slots, AWholeModelCountsTheStatisticsOfGroupsInThemToo) {
  const Graph model =
      *BuildConvnet({.input = {2, 8, 8}, .channels = {4, 6}, .classes = 5, .batch_norm = true});
  const CompileOptions options = {.max_rows = 5, .max_groups = 2};
  CompileOptions slotted = options;
  slotted.microbatch_slots = 2;
  const auto whole = Compile(GetParam(), model, {}, options);
  const auto halves = Compile(GetParam(), model, {}, slotted);
  testing::RandomizeState(1, *whole);
  testing::CopyState(*whole, *halves);
  const TestBatch batch = testing::RandomBatch(3, model, 5);
  const std::vector<int64_t> groups = {2, 3};
  Batch rows = batch.batch();
  rows.groups = groups;
  for (int times = 0; times < 3; ++times) {
    ASSERT_TRUE(whole->Accumulate(rows, 0.25, nullptr).ok());
    ASSERT_TRUE(halves->Accumulate(rows, 0.25, nullptr).ok());
    // The other slot is used in between.
    ASSERT_TRUE(halves->pipeline_stage()->Forward(batch.batch(), 5, 1).ok());
    EXPECT_EQ(testing::ReadReduction(*halves), testing::ReadReduction(*whole));
  }
}

TEST_P(Slots, RefuseWhatDoesNotFitTogether) {
  const Graph model = ModelOf("convnet");
  const auto stages = SplitModel(model, {"conv2"});
  ASSERT_TRUE(stages.ok()) << stages.status();
  const CompileOptions options = {.max_rows = 4, .microbatch_slots = 1};
  const auto first = Compile(GetParam(), (*stages)[0], {}, options);
  const auto last = Compile(GetParam(), (*stages)[1], {}, options);
  const TestBatch batch = testing::RandomBatch(3, model, 4);
  EXPECT_THAT(first->pipeline_stage()->Forward(batch.batch(), 4, 1).message(),
              HasSubstr("slot 1; expected below"));
  EXPECT_THAT(first->pipeline_stage()->Forward(batch.batch(), 5, 0).message(),
              HasSubstr("a batch of 5 rows"));
  EXPECT_THAT(first->pipeline_stage()->Forward({.inputs = {}, .labels = {}}, 4, 0).message(),
              HasSubstr("a batch of 0 input values"));
  EXPECT_THAT(last->pipeline_stage()->Forward({.inputs = {}, .labels = {}}, 4, 0).message(),
              HasSubstr("a microbatch of 0 labels; expected 4 of 4 rows"));
  EXPECT_THAT(first->pipeline_stage()->Backward(batch.batch(), 4, 0, 1, nullptr).message(),
              HasSubstr("expected Forward of the same microbatch before"));
  EXPECT_THAT(first->Accumulate(batch.batch(), 1, nullptr).message(),
              HasSubstr("a stage of a pipeline by itself"));
  EXPECT_THAT(last->Evaluate(batch.batch()).status().message(),
              HasSubstr("a stage of a pipeline by itself"));
}

INSTANTIATE_TEST_SUITE_P(Backends, Slots, ::testing::ValuesIn(testing::AllBackends()));

}  // namespace
}  // namespace trainyard::engine
