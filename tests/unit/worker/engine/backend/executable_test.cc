// Tests the contract of the port, on every backend.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "tests/unit/worker/engine/engine_testing.h"
#include "worker/engine/graph/graph_builder.h"
#include "worker/engine/make_backend.h"
#include "worker/engine/models/models.h"

namespace trainyard::engine {
namespace {

using testing::Compile;
using ::testing::HasSubstr;
using testing::TestBatch;
using testing::Values;

Graph Model() {
  return *BuildConvnet({.input = {2, 9, 9}, .channels = {4, 6}, .classes = 5, .batch_norm = true});
}

class Executables : public ::testing::TestWithParam<std::string> {};

TEST_P(Executables, TwoHalvesWeighAsMuchAsTheWhole) {
  const Graph model = *BuildConvnet({.input = {2, 9, 9}, .channels = {4, 6}, .classes = 5});
  const std::unique_ptr<Executable> whole = Compile(GetParam(), model, {}, {.max_rows = 6});
  const std::unique_ptr<Executable> halves = Compile(GetParam(), model, {}, {.max_rows = 6});
  testing::RandomizeState(1, *whole);
  testing::RandomizeState(1, *halves);
  for (uint64_t step = 0; step < 2; ++step) {
    const TestBatch batch = testing::RandomBatch(step, model, 6);
    ASSERT_TRUE(whole->Accumulate(batch.batch(), 1, nullptr).ok());
    // Unequal parts, weighted by their rows.
    ASSERT_TRUE(halves->Accumulate(batch.Rows(0, 4).batch(), 4.0 / 6, nullptr).ok());
    ASSERT_TRUE(halves->Accumulate(batch.Rows(4, 6).batch(), 2.0 / 6, nullptr).ok());
    testing::ExpectNear(testing::Gradients(model, *halves), testing::Gradients(model, *whole),
                        1e-6);
    const absl::StatusOr<StepMetrics> a = whole->Update(0.1);
    const absl::StatusOr<StepMetrics> b = halves->Update(0.1);
    ASSERT_TRUE(a.ok() && b.ok());
    EXPECT_NEAR(a->loss, b->loss, 1e-5);
    EXPECT_NEAR(a->accuracy, b->accuracy, 1e-6);
  }
}

TEST_P(Executables, StatisticsOfReplicasAreAveraged) {
  const Graph model = Model();
  const std::unique_ptr<Executable> executable = Compile(GetParam(), model, {}, {.max_rows = 4});
  ASSERT_TRUE(InitializeParameters(1, *executable).ok());
  const TestBatch a = testing::RandomBatch(1, model, 4);
  const TestBatch b = testing::RandomBatch(2, model, 4);
  auto running = [&](const std::vector<std::pair<TestBatch, double>>& parts) {
    EXPECT_TRUE(InitializeParameters(1, *executable).ok());
    for (const auto& [batch, weight] : parts) {
      EXPECT_TRUE(executable->Accumulate(batch.batch(), weight, nullptr).ok());
    }
    EXPECT_TRUE(executable->Update(0).ok());
    return testing::ReadState(*executable, "bn1.running_var");
  };
  const Values only_a = running({{a, 1}});
  const Values only_b = running({{b, 1}});
  Values expected(only_a.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    expected[i] = 0.25f * only_a[i] + 0.75f * only_b[i];
  }
  testing::ExpectNear(running({{a, 0.25}, {b, 0.75}}), expected, 1e-6, "bn1.running_var");
}

// The first part of the shared weight is made early and the last one at the end.
Graph TiedModel() {
  GraphBuilder b = GraphBuilder::ForTokens(3, 5);
  ValueId x = b.LayerNorm("ln", b.Embedding("tok", b.input(), 6));
  x = b.Linear("fc2", b.Relu(b.Linear("fc1", x, 8)), 6);
  b.SoftmaxCrossEntropy(b.TiedLinear("head", x, "tok"));
  return *std::move(b).Build();
}

TEST_P(Executables, ReadyRangesCoverTheReductionInOrder) {
  for (const Graph& model : {Model(), TiedModel()}) {
    const std::unique_ptr<Executable> executable = Compile(GetParam(), model, {}, {.max_rows = 3});
    testing::RandomizeState(1, *executable);
    const TestBatch batch = testing::RandomBatch(1, model, 3);
    Values seen(executable->reduction().size(), -1);
    int64_t next = 0;
    int ranges = 0;
    ASSERT_TRUE(executable
                    ->Accumulate(batch.batch(), 1,
                                 [&](int64_t offset, int64_t count) {
                                   EXPECT_EQ(offset, next);
                                   EXPECT_GT(count, 0);
                                   const Values sums = testing::ReadReduction(*executable);
                                   std::copy_n(sums.begin() + offset, count, seen.begin() + offset);
                                   next = offset + count;
                                   ++ranges;
                                 })
                    .ok());
    EXPECT_EQ(next, static_cast<int64_t>(executable->reduction().size()));
    // There is at least one range for each layer with parameters, so that communication starts
    // early.
    EXPECT_GE(ranges, 5);
    EXPECT_EQ(seen, testing::ReadReduction(*executable));
  }
}

TEST_P(Executables, TheReductionIsZeroAtTheStartAndAfterEachUpdate) {
  const Graph model = Model();
  const std::unique_ptr<Executable> executable = Compile(GetParam(), model, {}, {.max_rows = 3});
  const Values zeros(executable->reduction().size(), 0.0f);
  auto reduction = [&] { return testing::ReadReduction(*executable); };
  EXPECT_EQ(reduction(), zeros);
  testing::RandomizeState(1, *executable);
  ASSERT_TRUE(executable->Accumulate(testing::RandomBatch(1, model, 3).batch(), 1, nullptr).ok());
  EXPECT_NE(reduction(), zeros);
  ASSERT_TRUE(executable->Update(0.1).ok());
  EXPECT_EQ(reduction(), zeros);
}

TEST_P(Executables, UpdateFollowsTheReducedSumsNotTheLocalOnes) {
  const Graph model = *BuildMlp({.input = {4}, .hidden = {}, .classes = 3});
  const std::unique_ptr<Executable> executable = Compile(GetParam(), model, {}, {.max_rows = 2});
  testing::RandomizeState(1, *executable);
  const Values before = testing::ReadState(*executable, "fc1.bias");
  // A rank without rows of its own gets everything from its peers.
  testing::WriteReduction(*executable, Values(executable->reduction().size(), 2));
  const absl::StatusOr<StepMetrics> metrics = executable->Update(0.5);
  ASSERT_TRUE(metrics.ok());
  EXPECT_EQ(metrics->loss, 2);
  const Values after = testing::ReadState(*executable, "fc1.bias");
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_FLOAT_EQ(after[i], before[i] - 1);
  }
}

TEST_P(Executables, EvaluateTouchesNoState) {
  const Graph model = Model();
  const std::unique_ptr<Executable> executable =
      Compile(GetParam(), model, {.momentum = 0.9}, {.max_rows = 3});
  testing::RandomizeState(1, *executable);
  const TestBatch batch = testing::RandomBatch(1, model, 3);
  ASSERT_TRUE(executable->Accumulate(batch.batch(), 1, nullptr).ok());
  const testing::NamedValues state = testing::ReadAllState(*executable);
  const testing::NamedValues gradients = testing::Gradients(model, *executable);
  ASSERT_TRUE(executable->Evaluate(batch.batch()).ok());
  ASSERT_TRUE(executable->Predict(batch.inputs).ok());
  EXPECT_EQ(testing::ReadAllState(*executable), state);
  EXPECT_EQ(testing::Gradients(model, *executable), gradients);
}

TEST_P(Executables, EvaluationAddsUpOverBatches) {
  const Graph model = Model();
  const std::unique_ptr<Executable> executable = Compile(GetParam(), model, {}, {.max_rows = 7});
  testing::RandomizeState(1, *executable);
  const TestBatch batch = testing::RandomBatch(1, model, 7);
  const absl::StatusOr<Evaluation> whole = executable->Evaluate(batch.batch());
  const absl::StatusOr<Evaluation> first = executable->Evaluate(batch.Rows(0, 5).batch());
  const absl::StatusOr<Evaluation> rest = executable->Evaluate(batch.Rows(5, 7).batch());
  ASSERT_TRUE(whole.ok() && first.ok() && rest.ok());
  EXPECT_NEAR(whole->loss_sum, first->loss_sum + rest->loss_sum, 1e-4);
  EXPECT_EQ(whole->correct, first->correct + rest->correct);
  EXPECT_EQ(whole->rows, 7);
}

TEST_P(Executables, RefuseBatchesThatDoNotFitTheModel) {
  const Graph model = Model();
  const std::unique_ptr<Executable> executable = Compile(GetParam(), model, {}, {.max_rows = 3});
  const TestBatch good = testing::RandomBatch(1, model, 3);
  auto message = [&](const TestBatch& batch) {
    const absl::Status status = executable->Accumulate(batch.batch(), 1, nullptr);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(executable->Evaluate(batch.batch()).status().code(),
              absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  TestBatch label = good;
  label.labels[1] = 5;
  EXPECT_THAT(message(label), AllOf(HasSubstr("label 5 of row 1"), HasSubstr("[0, 5)")));
  label.labels[1] = -1;
  EXPECT_THAT(message(label), HasSubstr("label -1"));
  EXPECT_THAT(message(testing::RandomBatch(1, model, 4)), HasSubstr("4 rows"));
  EXPECT_THAT(message({}), HasSubstr("0 rows"));
  TestBatch inputs = good;
  inputs.inputs.pop_back();
  EXPECT_THAT(message(inputs), HasSubstr("485 input values"));
  EXPECT_EQ(executable->Predict(inputs.inputs).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_P(Executables, RefuseBatchNormOverASingleValue) {
  GraphBuilder builder({3, 1, 1});
  builder.SoftmaxCrossEntropy(
      builder.Linear("fc", builder.Flatten(builder.BatchNorm("bn", builder.input())), 2));
  const Graph model = *std::move(builder).Build();
  const std::unique_ptr<Executable> executable = Compile(GetParam(), model, {}, {.max_rows = 2});
  const absl::Status status =
      executable->Accumulate(testing::RandomBatch(1, model, 1).batch(), 1, nullptr);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("'bn'"));
}

TEST_P(Executables, RefuseStateOfAnotherSize) {
  const std::unique_ptr<Executable> executable = Compile(GetParam(), Model(), {}, {});
  Values values(3);
  EXPECT_EQ(executable->WriteState(0, values).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(executable->ReadState(0, absl::MakeSpan(values)).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(executable->WriteState(1000, values).code(), absl::StatusCode::kInvalidArgument);
}

TEST_P(Executables, StateWrittenIsStateRead) {
  const std::unique_ptr<Executable> executable =
      Compile(GetParam(), Model(), {.momentum = 0.9}, {});
  for (size_t i = 0; i < executable->state().size(); ++i) {
    const Values values = testing::RandomValues(i, ElementCount(executable->state()[i].shape));
    ASSERT_TRUE(executable->WriteState(i, values).ok());
    EXPECT_EQ(testing::ReadState(*executable, executable->state()[i].name), values);
  }
}

TEST_P(Executables, NanInputsMakeANanLoss) {
  const Graph model = *BuildConvnet({.input = {2, 8, 8}, .channels = {16, 16}, .classes = 5});
  const std::unique_ptr<Executable> executable = Compile(GetParam(), model, {}, {.max_rows = 2});
  ASSERT_TRUE(InitializeParameters(1, *executable).ok());
  TestBatch batch = testing::RandomBatch(1, model, 2);
  batch.inputs[7] = std::numeric_limits<float>::quiet_NaN();
  ASSERT_TRUE(executable->Accumulate(batch.batch(), 1, nullptr).ok());
  const absl::StatusOr<StepMetrics> metrics = executable->Update(0.1);
  ASSERT_TRUE(metrics.ok());
  EXPECT_TRUE(std::isnan(metrics->loss));
}

TEST_P(Executables, LearnASmallSetByHeart) {
  const Graph model = Model();
  const std::unique_ptr<Executable> executable =
      Compile(GetParam(), model, {.momentum = 0.9}, {.max_rows = 8});
  ASSERT_TRUE(InitializeParameters(1, *executable).ok());
  const TestBatch batch = testing::RandomBatch(1, model, 8);
  StepMetrics metrics;
  for (int step = 0; step < 40; ++step) {
    ASSERT_TRUE(executable->Accumulate(batch.batch(), 1, nullptr).ok());
    metrics = *executable->Update(0.05);
  }
  EXPECT_LT(metrics.loss, 0.05);
  EXPECT_EQ(metrics.accuracy, 1);
}

Graph TokenModel() {
  GraphBuilder b = GraphBuilder::ForTokens(3, 5);
  const ValueId x = b.LayerNorm("ln", b.Embedding("tok", b.input(), 6));
  b.SoftmaxCrossEntropy(b.Linear("head", b.Attention(x, 2), 5));
  return *std::move(b).Build();
}

TEST_P(Executables, JudgeEveryPositionOfASequence) {
  const Graph model = TokenModel();
  const std::unique_ptr<Executable> whole = Compile(GetParam(), model, {}, {.max_rows = 4});
  const std::unique_ptr<Executable> parts = Compile(GetParam(), model, {}, {.max_rows = 4});
  testing::RandomizeState(1, *whole);
  testing::RandomizeState(1, *parts);
  const TestBatch batch = testing::RandomBatch(1, model, 4);
  const absl::StatusOr<Evaluation> all = whole->Evaluate(batch.batch());
  const absl::StatusOr<Evaluation> first = whole->Evaluate(batch.Rows(0, 1).batch());
  const absl::StatusOr<Evaluation> rest = whole->Evaluate(batch.Rows(1, 4).batch());
  ASSERT_TRUE(all.ok() && first.ok() && rest.ok());
  EXPECT_EQ(all->rows, 12);
  EXPECT_EQ(all->correct, first->correct + rest->correct);
  EXPECT_NEAR(all->loss_sum, first->loss_sum + rest->loss_sum, 1e-4);
  EXPECT_EQ(whole->Predict(batch.inputs)->size(), 4u * 3 * 5);
  ASSERT_TRUE(whole->Accumulate(batch.batch(), 1, nullptr).ok());
  ASSERT_TRUE(parts->Accumulate(batch.Rows(0, 1).batch(), 0.25, nullptr).ok());
  ASSERT_TRUE(parts->Accumulate(batch.Rows(1, 4).batch(), 0.75, nullptr).ok());
  testing::ExpectNear(testing::Gradients(model, *parts), testing::Gradients(model, *whole), 1e-6);
  const absl::StatusOr<StepMetrics> a = whole->Update(0.1);
  const absl::StatusOr<StepMetrics> b = parts->Update(0.1);
  EXPECT_NEAR(a->loss, all->loss_sum / 12, 1e-5);
  EXPECT_NEAR(a->loss, b->loss, 1e-5);
  EXPECT_NEAR(a->accuracy, static_cast<double>(all->correct) / 12, 1e-6);
  EXPECT_NEAR(a->accuracy, b->accuracy, 1e-6);
}

TEST_P(Executables, RefuseTokensThatTheVocabularyLacks) {
  const std::unique_ptr<Executable> executable = Compile(GetParam(), TokenModel(), {}, {});
  const std::vector<int32_t> labels = {0, 1, 4};
  for (const float token : {-1.0f, 5.0f, 0.5f, std::numeric_limits<float>::quiet_NaN()}) {
    const Values tokens = {0, 4, token};
    const absl::Status status = executable->Accumulate({tokens, labels}, 1, nullptr);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("at input value 2"), HasSubstr("[0, 5)")));
    EXPECT_FALSE(executable->Predict(tokens).ok());
  }
  const Values tokens = {0, 4, 1};
  const absl::Status status =
      executable->Accumulate({tokens, absl::MakeConstSpan(labels).first(2)}, 1, nullptr);
  EXPECT_THAT(std::string(status.message()), HasSubstr("2 labels; expected 3 a row"));
  EXPECT_TRUE(executable->Accumulate({tokens, labels}, 1, nullptr).ok());
}

// These numbers were computed by hand, after PyTorch's definitions.
TEST_P(Executables, ComputeKnownValues) {
  const auto run = [](Shape input, const std::function<ValueId(GraphBuilder&, ValueId)>& layer,
                      const Values& x) {
    GraphBuilder b(std::move(input));
    b.SoftmaxCrossEntropy(b.Flatten(layer(b, b.input())));
    return *Compile(GetParam(), *std::move(b).Build(), {}, {})->Predict(x);
  };
  constexpr double kNear = 1e-6;
  testing::ExpectNear(
      run({3, 1, 1},
          [](GraphBuilder& b, ValueId x) { return b.Lrn(x, {.size = 3, .alpha = 3, .beta = 1}); },
          {1, 2, 3}),
      {1.0f / 6, 2.0f / 15, 3.0f / 14}, kNear, "lrn");
  // A window of even size has the channel more before its own.
  testing::ExpectNear(
      run({3, 1, 1},
          [](GraphBuilder& b, ValueId x) { return b.Lrn(x, {.size = 2, .alpha = 2, .beta = 1}); },
          {1, 2, 3}),
      {1.0f / 2, 2.0f / 6, 3.0f / 14}, kNear, "lrn of even size");
  const auto pool = [&](const PoolOptions& options) {
    return run({1, 3, 3}, [&](GraphBuilder& b, ValueId x) { return b.AvgPool(x, options); },
               {1, 2, 3, 4, 5, 6, 7, 8, 9});
  };
  testing::ExpectNear(pool({.kernel = 2, .ceil_mode = true}), {3, 4.5, 7.5, 9}, kNear,
                      "avg_pool, ceil_mode");
  testing::ExpectNear(pool({.kernel = 3, .stride = 2, .padding = 1}),
                      {12.0f / 9, 16.0f / 9, 24.0f / 9, 28.0f / 9}, kNear, "avg_pool, padding");
  testing::ExpectNear(pool({.kernel = 3, .stride = 2, .padding = 1, .count_padding = false}),
                      {3, 4, 6, 7}, kNear, "avg_pool, padding not counted");
  testing::ExpectNear(run({2}, [](GraphBuilder& b, ValueId x) { return b.Gelu(x); }, {1, -2}),
                      {0.8413447f, -0.04550026f}, kNear, "gelu");
  testing::ExpectNear(
      run({2}, [](GraphBuilder& b, ValueId x) { return b.Gelu(x, {.tanh = true}); }, {1, -2}),
      {0.8411920f, -0.04540231f}, kNear, "gelu by tanh");
  testing::ExpectNear(run({2}, [](GraphBuilder& b, ValueId x) { return b.Sigmoid(x); }, {0, 2}),
                      {0.5f, 0.8807971f}, kNear, "sigmoid");
  testing::ExpectNear(run({3},
                          [](GraphBuilder& b, ValueId x) {
                            return b.Concat({x, x});
                          },
                          {1, 2, 3}),
                      {1, 2, 3, 1, 2, 3}, 0, "concat");
}

TEST_P(Executables, ALossWithSmoothingIsTheCrossEntropyToTheMixedTarget) {
  GraphBuilder b({3});
  b.SoftmaxCrossEntropy(b.input(), 0.3);
  const std::unique_ptr<Executable> executable = Compile(GetParam(), *std::move(b).Build(), {}, {});
  const Values logits = {0, 1, 2};
  ASSERT_TRUE(executable->Accumulate({logits, std::vector<int32_t>{1}}, 1, nullptr).ok());
  // log(1 + e + e^2) - (0.1 * 0 + 0.8 * 1 + 0.1 * 2)
  EXPECT_NEAR(executable->Update(0)->loss, 2.4076059644 - 1.0, 1e-6);
}

TEST_P(Executables, EvaluateAgainstTheLabelsAloneWhateverTheSmoothing) {
  const auto model = [](double smoothing) {
    GraphBuilder b({6});
    b.SoftmaxCrossEntropy(b.Linear("fc", b.input(), 4), smoothing);
    return *std::move(b).Build();
  };
  const std::unique_ptr<Executable> plain = Compile(GetParam(), model(0), {}, {.max_rows = 3});
  const std::unique_ptr<Executable> smooth = Compile(GetParam(), model(0.3), {}, {.max_rows = 3});
  testing::RandomizeState(1, *plain);
  testing::RandomizeState(1, *smooth);
  const TestBatch batch = testing::RandomBatch(1, model(0), 3);
  EXPECT_EQ(smooth->Evaluate(batch.batch())->loss_sum, plain->Evaluate(batch.batch())->loss_sum);
  ASSERT_TRUE(plain->Accumulate(batch.batch(), 1, nullptr).ok());
  ASSERT_TRUE(smooth->Accumulate(batch.batch(), 1, nullptr).ok());
  EXPECT_NE(smooth->Update(0)->loss, plain->Update(0)->loss);
}

TEST_P(Executables, InspectWantsToBeAskedForAtCompileTime) {
  const std::unique_ptr<Executable> executable = Compile(GetParam(), Model(), {}, {});
  EXPECT_EQ(executable->Inspect().status().code(), absl::StatusCode::kFailedPrecondition);
}

INSTANTIATE_TEST_SUITE_P(Backends, Executables, ::testing::ValuesIn(testing::AllBackends()));

TEST(MakeBackend, NamesTheBackendsThatItKnows) {
  const absl::StatusOr<std::unique_ptr<Backend>> backend = MakeBackend("gpu");
  EXPECT_EQ(backend.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(backend.status().message()), HasSubstr("expected one of cpu, "));
  EXPECT_EQ((*MakeBackend(testing::TestedBackend()))->name(), testing::TestedBackend());
}

TEST(Backend, RefusesCompileOptionsThatMakeNoSense) {
  for (const std::string& name : testing::TestedAndReference()) {
    EXPECT_EQ((*MakeBackend(name))->Compile(Model(), {}, {.max_rows = 0}).status().code(),
              absl::StatusCode::kInvalidArgument);
    EXPECT_EQ((*MakeBackend(name))->Compile(Model(), {}, {.threads = 0}).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST(CpuBackend, RepeatsAStepBitForBit) {
  const Graph model = Model();
  testing::NamedValues first;
  for (int run = 0; run < 2; ++run) {
    const std::unique_ptr<Executable> executable =
        Compile(testing::TestedBackend(), model, {.momentum = 0.9}, {.max_rows = 7});
    ASSERT_TRUE(InitializeParameters(3, *executable).ok());
    for (uint64_t step = 0; step < 3; ++step) {
      ASSERT_TRUE(
          executable->Accumulate(testing::RandomBatch(step, model, 7).batch(), 1, nullptr).ok());
      ASSERT_TRUE(executable->Update(0.1).ok());
    }
    const testing::NamedValues state = testing::ReadAllState(*executable);
    if (run == 0) {
      first = state;
    }
    EXPECT_EQ(state, first);
  }
}

Graph ModelOfOtherOps() {
  GraphBuilder b({3, 6, 6});
  const ValueId x = b.Sigmoid(b.Conv2d("conv", b.input(), {.channels = 16, .padding = 1}));
  const ValueId y = b.Lrn(b.Concat({x, b.Gelu(x)}), {.alpha = 0.1});
  const ValueId features = b.Flatten(b.MaxPool(y, {.kernel = 3, .stride = 2, .ceil_mode = true}));
  b.SoftmaxCrossEntropy(b.Linear("fc", b.Dropout(features, 0.5), 5), 0.1);
  return *std::move(b).Build();
}

// Enough tiles for minimal filtering.
Graph ModelOfWideImages() {
  GraphBuilder b({3, 13, 10});
  const layers::Conv2d conv = {.channels = 16, .kernel = 3, .padding = 1};
  const ValueId x = b.Conv2d("conv2", b.Tanh(b.Conv2d("conv1", b.input(), conv)), conv);
  b.SoftmaxCrossEntropy(b.Linear("fc", b.Flatten(b.Relu(x)), 5));
  return *std::move(b).Build();
}

TEST(CpuBackend, TwoThreadsComputeWhatOneDoes) {
  for (const Graph& model :
       {Model(), TokenModel(), TiedModel(), ModelOfOtherOps(), ModelOfWideImages()}) {
    const std::unique_ptr<Executable> one =
        Compile(testing::TestedBackend(), model, {}, {.max_rows = 7});
    const std::unique_ptr<Executable> two =
        Compile(testing::TestedBackend(), model, {}, {.max_rows = 7, .threads = 2});
    testing::RandomizeState(1, *one);
    testing::RandomizeState(1, *two);
    const TestBatch batch = testing::RandomBatch(1, model, 7);
    ASSERT_TRUE(one->Accumulate(batch.batch(), 1, nullptr).ok());
    ASSERT_TRUE(two->Accumulate(batch.batch(), 1, nullptr).ok());
    testing::ExpectNear(testing::Gradients(model, *two), testing::Gradients(model, *one), 1e-5);
  }
}

}  // namespace
}  // namespace trainyard::engine
