// Tests, on every backend, that a batch of several replicas (Batch::groups) adds the same to the
// reduction as the replicas one after the other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/unit/worker/engine/bf16_testing.h"
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

using Groups = std::vector<int64_t>;

Graph Convnet() {
  return *BuildConvnet({.input = {2, 9, 9}, .channels = {4, 6}, .classes = 5, .batch_norm = true});
}

struct NamedModel {
  std::string name;
  Graph graph;
};

std::vector<NamedModel> Models() {
  return {
      {"convnet", Convnet()},
      // There are so many pixels that a GPU needs several blocks for a group.
      {"convnet of large images",
       *BuildConvnet({.input = {1, 38, 38}, .channels = {9, 4}, .classes = 5, .batch_norm = true})},
      // Channels that fill no block, and those that do.
      {"residual blocks of 6 channels", testing::Residuals(6)},
      {"residual blocks of 16 channels", testing::Residuals(16)},
      {"inception modules", testing::Inceptions({16, 24, 16, 20})}};
}

std::vector<std::pair<std::string, PassOptions>> AllPasses() {
  return {{"all passes", {}},
          {"no pass", testing::kNoPasses},
          {"recomputed activations", {.recompute = true}},
          {"norms that are kept", {.recompute_norms = false}}};
}

// The tolerance of the reduction and the state, whose sums are taken in another order.
double Tolerance(const std::string& backend) {
  return backend == "reference_f64" ? 1e-6 : 2e-5;
}

// Returns what both compute for the rows, one below the other.
void Append(const Inspection& part, Inspection& all) {
  all.logits.insert(all.logits.end(), part.logits.begin(), part.logits.end());
  all.input_gradient.insert(all.input_gradient.end(), part.input_gradient.begin(),
                            part.input_gradient.end());
}

void ExpectNear(const std::vector<double>& a, const std::vector<double>& b, double tolerance,
                const std::string& what) {
  testing::ExpectNear(Values(a.begin(), a.end()), Values(b.begin(), b.end()), tolerance, what);
}

class BatchNormGroups : public ::testing::TestWithParam<std::string> {
 protected:
  static Batch Grouped(const TestBatch& batch, const Groups& groups) {
    Batch grouped = batch.batch();
    grouped.groups = groups;
    return grouped;
  }

  // Calls Accumulate once for each group.
  static Inspection AccumulateSeparately(Executable& executable, const TestBatch& batch,
                                         const Groups& groups, double weight) {
    const int64_t rows = static_cast<int64_t>(batch.labels.size());
    Inspection inspection;
    int64_t begin = 0;
    for (const int64_t group : groups) {
      const TestBatch part = batch.Rows(begin, begin + group);
      const double share = weight * static_cast<double>(group) / static_cast<double>(rows);
      EXPECT_TRUE(executable.Accumulate(part.batch(), share, nullptr).ok());
      Append(*executable.Inspect(), inspection);
      begin += group;
    }
    return inspection;
  }

  // `options` come without rows and groups.
  static void CompareWithSeparate(const std::string& backend, const Graph& model,
                                  CompileOptions options, double tolerance) {
    options.max_rows = 8;
    options.inspect = true;
    const std::unique_ptr<Executable> separate =
        Compile(backend, model, {.momentum = 0.9}, options);
    options.max_groups = 4;
    const std::unique_ptr<Executable> grouped = Compile(backend, model, {.momentum = 0.9}, options);
    testing::RandomizeState(5, *separate);
    testing::CopyState(*separate, *grouped);
    // Sizes that differ, added to what is there, as many as there may be, a small last batch, and
    // what was there before; with an update between.
    const std::vector<std::vector<Groups>> steps = {
        {{3, 3, 2}, {2, 2, 2, 2}}, {{2, 1, 2}}, {{3, 3, 2}}, {{5}}};
    for (size_t step = 0; step < steps.size(); ++step) {
      for (const Groups& groups : steps[step]) {
        SCOPED_TRACE(absl::StrCat("step ", step, ", groups ", absl::StrJoin(groups, " ")));
        int64_t rows = 0;
        for (const int64_t group : groups) rows += group;
        const TestBatch batch = testing::RandomBatch(step, model, rows);
        const absl::Status status = grouped->Accumulate(Grouped(batch, groups), 0.5, nullptr);
        ASSERT_TRUE(status.ok()) << status;
        const Inspection expected = AccumulateSeparately(*separate, batch, groups, 0.5);
        const Inspection actual = *grouped->Inspect();
        ExpectNear(actual.logits, expected.logits, tolerance, "logits");
        ExpectNear(actual.input_gradient, expected.input_gradient, tolerance, "input gradient");
      }
      testing::ExpectNear(testing::ReadReduction(*grouped), testing::ReadReduction(*separate),
                          tolerance, "reduction");
      ASSERT_TRUE(separate->Update(0.01).ok());
      ASSERT_TRUE(grouped->Update(0.01).ok());
      testing::ExpectNear(testing::ReadAllState(*grouped), testing::ReadAllState(*separate),
                          tolerance);
      // The differences do not add up.
      testing::CopyState(*separate, *grouped);
    }
  }
};

TEST_P(BatchNormGroups, AddWhatSeparateBatchesOfTheReplicasAdd) {
  for (const NamedModel& model : Models()) {
    for (const auto& [name, passes] : AllPasses()) {
      SCOPED_TRACE(absl::StrCat(model.name, ", ", name));
      CompareWithSeparate(GetParam(), model.graph, {.passes = passes}, Tolerance(GetParam()));
    }
  }
}

TEST_P(BatchNormGroups, AreNotTheWholeBatch) {
  const Graph model = Convnet();
  const std::unique_ptr<Executable> executable =
      Compile(GetParam(), model, {}, {.max_rows = 6, .max_groups = 2});
  testing::RandomizeState(5, *executable);
  const TestBatch batch = testing::RandomBatch(1, model, 6);
  const auto sums = [&](const Groups& groups) {
    EXPECT_TRUE(executable->Accumulate(Grouped(batch, groups), 1, nullptr).ok());
    Values values = testing::ReadReduction(*executable);
    testing::WriteReduction(*executable, Values(values.size(), 0));
    return values;
  };
  const Values whole = sums({});
  EXPECT_EQ(sums({6}), whole);
  EXPECT_NE(sums({3, 3}), whole);
  EXPECT_NE(sums({3, 3}), sums({2, 4}));
}

TEST_P(BatchNormGroups, DrawTheSameDropoutAsTheWholeBatch) {
  GraphBuilder b({2, 6, 6});
  const ValueId x = b.BatchNorm("bn", b.Conv2d("conv", b.input(), {.channels = 8}));
  b.SoftmaxCrossEntropy(b.Linear("fc", b.Dropout(b.Flatten(b.Relu(x)), 0.5), 5));
  const Graph model = *std::move(b).Build();
  CompileOptions options = {.max_rows = 6, .max_groups = 3, .inspect = true};
  const std::unique_ptr<Executable> actual = Compile(GetParam(), model, {}, options);
  const std::unique_ptr<Executable> expected = Compile("reference_f64", model, {}, options);
  testing::RandomizeState(5, *expected);
  testing::CopyState(*expected, *actual);
  const TestBatch rows = testing::RandomBatch(1, model, 6);
  const Groups groups = {2, 2, 2};
  Batch batch = Grouped(rows, groups);
  batch.position = {.seed = 3, .step = 4, .first_row = 10};
  ASSERT_TRUE(expected->Accumulate(batch, 1, nullptr).ok());
  ASSERT_TRUE(actual->Accumulate(batch, 1, nullptr).ok());
  ExpectNear(actual->Inspect()->logits, expected->Inspect()->logits, 2e-5, "logits");
  testing::ExpectNear(testing::ReadReduction(*actual), testing::ReadReduction(*expected), 2e-5,
                      "reduction");
}

TEST_P(BatchNormGroups, RepeatAStepWhateverGroupsCameBetween) {
  // This is compiled without `inspect`, so that a device may keep what it recorded.
  const Graph model = Convnet();
  const std::unique_ptr<Executable> executable =
      Compile(GetParam(), model, {}, {.max_rows = 6, .max_groups = 3});
  testing::RandomizeState(5, *executable);
  const TestBatch batch = testing::RandomBatch(1, model, 6);
  const std::vector<Groups> layouts = {{2, 2, 2}, {}, {4, 2}, {2, 4}};
  std::vector<Values> first;
  for (int round = 0; round < 3; ++round) {
    for (size_t i = 0; i < layouts.size(); ++i) {
      ASSERT_TRUE(executable->Accumulate(Grouped(batch, layouts[i]), 1, nullptr).ok());
      const Values sums = testing::ReadReduction(*executable);
      if (round == 0) first.push_back(sums);
      EXPECT_EQ(sums, first[i]) << "round " << round << ", layout " << i;
      ASSERT_TRUE(executable->Update(0).ok());
    }
  }
}

TEST_P(BatchNormGroups, StepAsAccumulateAndUpdateDo) {
  const Graph model = testing::Residuals(8);
  const CompileOptions options = {.max_rows = 6, .max_groups = 3};
  const std::unique_ptr<Executable> whole = Compile(GetParam(), model, {}, options);
  const std::unique_ptr<Executable> parts = Compile(GetParam(), model, {}, options);
  testing::RandomizeState(5, *whole);
  testing::CopyState(*whole, *parts);
  for (uint64_t step = 0; step < 4; ++step) {
    const TestBatch rows = testing::RandomBatch(step, model, 6);
    const Groups groups = step % 2 == 0 ? Groups{2, 2, 2} : Groups{4, 2};
    const Batch batch = Grouped(rows, groups);
    ASSERT_TRUE(whole->StartStep(batch, 0.01).ok());
    ASSERT_TRUE(whole->FinishUpdate().ok());
    ASSERT_TRUE(parts->Accumulate(batch, 1, nullptr).ok());
    ASSERT_TRUE(parts->Update(0.01).ok());
    EXPECT_EQ(testing::ReadAllState(*whole), testing::ReadAllState(*parts));
  }
}

// Each row's values are rounded alike whatever rows lie around it, so decisions are the same too.
// But the gradients of weights may be, too, before they are added up: by 2^-9 for each replica.
TEST_P(BatchNormGroups, AddTheSameInSixteenBits) {
  if (GetParam() != testing::TestedBackend()) GTEST_SKIP() << "the reference has f32 and f64";
  for (const Precision precision : {Precision::kBf16, Precision::kF16}) {
    if (!testing::Has(precision)) continue;
    for (const NamedModel& model : Models()) {
      SCOPED_TRACE(absl::StrCat(model.name, ", ", PrecisionName(precision)));
      CompareWithSeparate(GetParam(), model.graph, {.precision = precision}, 4 * std::exp2(-9));
    }
  }
}

TEST_P(BatchNormGroups, AreRefusedWhereTheyAreNotTheBatch) {
  const Graph model = Convnet();
  const std::unique_ptr<Executable> executable =
      Compile(GetParam(), model, {}, {.max_rows = 6, .max_groups = 3});
  testing::RandomizeState(5, *executable);
  const TestBatch batch = testing::RandomBatch(1, model, 6);
  const auto message = [&](const Groups& groups) {
    const absl::Status status = executable->Accumulate(Grouped(batch, groups), 1, nullptr);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(message({3, 2}), HasSubstr("5 rows in all; expected 6"));
  EXPECT_THAT(message({3, 4}), HasSubstr("a group of 4 rows behind 3"));
  EXPECT_THAT(message({6, 0}), HasSubstr("a group of 0 rows"));
  EXPECT_THAT(message({7, -1}), HasSubstr("a group of 7 rows"));
  EXPECT_THAT(message({2, 2, 1, 1}), HasSubstr("4 groups of rows; expected 3 at most"));
  // An evaluation has no use for groups, but refuses invalid ones.
  EXPECT_EQ(executable->Evaluate(Grouped(batch, {3, 2})).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(executable->Evaluate(Grouped(batch, {1, 2, 3}))->loss_sum,
            executable->Evaluate(batch.batch())->loss_sum);
}

TEST_P(BatchNormGroups, OfASingleValuePerChannelAreRefused) {
  GraphBuilder builder({3, 1, 1});
  builder.SoftmaxCrossEntropy(
      builder.Linear("fc", builder.Flatten(builder.BatchNorm("bn", builder.input())), 2));
  const Graph model = *std::move(builder).Build();
  const std::unique_ptr<Executable> executable =
      Compile(GetParam(), model, {}, {.max_rows = 5, .max_groups = 2});
  const TestBatch batch = testing::RandomBatch(1, model, 5);
  EXPECT_TRUE(executable->Accumulate(Grouped(batch, {3, 2}), 1, nullptr).ok());
  const absl::Status status = executable->Accumulate(Grouped(batch, {4, 1}), 1, nullptr);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("'bn'"));
}

TEST_P(BatchNormGroups, WithoutBatchNormMakeNoDifference) {
  const Graph model = *BuildMlp({.input = {4}, .hidden = {5}, .classes = 3});
  const std::unique_ptr<Executable> executable = Compile(GetParam(), model, {}, {.max_rows = 4});
  testing::RandomizeState(1, *executable);
  const TestBatch batch = testing::RandomBatch(1, model, 4);
  ASSERT_TRUE(executable->Accumulate(batch.batch(), 1, nullptr).ok());
  const Values whole = testing::ReadReduction(*executable);
  ASSERT_TRUE(executable->Update(0).ok());
  ASSERT_TRUE(executable->Accumulate(Grouped(batch, {1, 1, 2}), 1, nullptr).ok());
  EXPECT_EQ(testing::ReadReduction(*executable), whole);
}

TEST_P(BatchNormGroups, ArePlannedExactly) {
  const Graph model = testing::Residuals(8);
  const CompileOptions options = {.max_rows = 6, .max_groups = 6};
  const int64_t before = LiveBufferBytes();
  const std::unique_ptr<Executable> executable = Compile(GetParam(), model, {}, options);
  const int64_t planned = executable->memory_plan().buffers();
  testing::RandomizeState(5, *executable);
  for (const Groups& groups : std::vector<Groups>{{1, 1, 1, 1, 1, 1}, {2, 2}, {}, {6}}) {
    int64_t rows = groups.empty() ? 3 : 0;
    for (const int64_t group : groups) rows += group;
    const TestBatch batch = testing::RandomBatch(1, model, rows);
    ASSERT_TRUE(executable->Accumulate(Grouped(batch, groups), 1, nullptr).ok());
  }
  EXPECT_EQ(LiveBufferBytes() - before, planned);
  EXPECT_EQ((*MakeBackend(GetParam()))->Plan(model, {}, options)->memory.buffers(), planned);
}

INSTANTIATE_TEST_SUITE_P(Backends, BatchNormGroups, ::testing::ValuesIn(testing::AllBackends()));

TEST(Backend, RefusesNumbersOfGroupsThatMakeNoSense) {
  for (const std::string& name : testing::TestedAndReference()) {
    for (const int64_t groups : {0, 3}) {
      EXPECT_EQ((*MakeBackend(name))
                    ->Compile(Convnet(), {}, {.max_rows = 2, .max_groups = groups})
                    .status()
                    .code(),
                absl::StatusCode::kInvalidArgument);
    }
  }
}

}  // namespace
}  // namespace trainyard::engine
