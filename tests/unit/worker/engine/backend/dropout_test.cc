// Tests that dropout drops the same elements on every backend and however the rows are spread.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tests/unit/worker/engine/engine_testing.h"
#include "worker/engine/graph/graph_builder.h"

namespace trainyard::engine {
namespace {

using testing::Compile;
using testing::TestBatch;
using testing::Values;

// A network whose logits are the outputs of dropout, so that its loss depends on them.
Graph OnlyDropout(int64_t elements, double rate) {
  GraphBuilder b({elements});
  b.SoftmaxCrossEntropy(b.Dropout(b.input(), rate));
  return *std::move(b).Build();
}

TestBatch Ones(int64_t rows, int64_t elements) {
  return {Values(static_cast<size_t>(rows * elements), 1.0f),
          std::vector<int32_t>(static_cast<size_t>(rows), 0)};
}

std::vector<double> Dropped(Executable& executable, const TestBatch& rows,
                            const RandomPosition& position) {
  Batch batch = rows.batch();
  batch.position = position;
  EXPECT_TRUE(executable.Accumulate(batch, 1, nullptr).ok());
  return executable.Inspect()->logits;
}

class Dropout : public ::testing::TestWithParam<std::string> {};

TEST_P(Dropout, DropsItsRateAndScalesTheRest) {
  constexpr int64_t kElements = 40001;
  for (const double rate : {0.1, 0.5, 0.8}) {
    const std::unique_ptr<Executable> executable =
        Compile(GetParam(), OnlyDropout(kElements, rate), {}, {.inspect = true});
    int64_t dropped = 0;
    for (const double y : Dropped(*executable, Ones(1, kElements), {.seed = 3})) {
      if (y == 0) {
        ++dropped;
      } else {
        ASSERT_NEAR(y, 1 / (1 - rate), 1e-6);
      }
    }
    // The bound is five standard deviations.
    const double spread = std::sqrt(kElements * rate * (1 - rate));
    EXPECT_NEAR(static_cast<double>(dropped), rate * kElements, 5 * spread);
  }
}

TEST_P(Dropout, DrawsWhatTheReferenceDraws) {
  // The size is no multiple of a block of words, of a tile of the kernel, or of a vector.
  for (const int64_t elements : {1, 7, 256, 1031}) {
    const Graph model = OnlyDropout(elements, 0.5);
    const CompileOptions options = {.max_rows = 3, .inspect = true};
    const std::unique_ptr<Executable> expected = Compile("reference", model, {}, options);
    const std::unique_ptr<Executable> actual = Compile(GetParam(), model, {}, options);
    const RandomPosition position = {
        .seed = 0x123456789abcdef0, .step = 5'000'000'000, .first_row = 17};
    const TestBatch batch = testing::RandomBatch(1, model, 3);
    EXPECT_EQ(Dropped(*actual, batch, position), Dropped(*expected, batch, position));
  }
}

TEST_P(Dropout, DoesNotDependOnHowRowsAreSpread) {
  const Graph model = OnlyDropout(37, 0.5);
  const std::unique_ptr<Executable> executable =
      Compile(GetParam(), model, {}, {.max_rows = 6, .inspect = true});
  const TestBatch batch = testing::RandomBatch(1, model, 6);
  const std::vector<double> whole = Dropped(*executable, batch, {.seed = 1, .step = 2});
  std::vector<double> parts;
  for (const auto& [begin, end] : {std::pair{0, 1}, {1, 4}, {4, 6}}) {
    const std::vector<double> part =
        Dropped(*executable, batch.Rows(begin, end), {.seed = 1, .step = 2, .first_row = begin});
    parts.insert(parts.end(), part.begin(), part.end());
  }
  EXPECT_EQ(parts, whole);
}

TEST_P(Dropout, DrawsAnewForEachSeedStepRowAndLayer) {
  const Graph model = OnlyDropout(64, 0.5);
  const std::unique_ptr<Executable> executable = Compile(GetParam(), model, {}, {.inspect = true});
  const TestBatch one = Ones(1, 64);
  std::set<std::vector<double>> masks;
  for (const RandomPosition& position :
       {RandomPosition{}, RandomPosition{.seed = 1}, RandomPosition{.seed = uint64_t{1} << 40},
        RandomPosition{.step = 1}, RandomPosition{.first_row = 1}}) {
    masks.insert(Dropped(*executable, one, position));
  }
  EXPECT_EQ(masks.size(), 5u);
  // Two layers that drop the same elements would leave half of them, not a quarter.
  GraphBuilder b({64});
  b.SoftmaxCrossEntropy(b.Dropout(b.Dropout(b.input(), 0.5), 0.5));
  const std::unique_ptr<Executable> two =
      Compile(GetParam(), *std::move(b).Build(), {}, {.inspect = true});
  const std::vector<double> left = Dropped(*two, one, {});
  EXPECT_GT(std::count(left.begin(), left.end(), 0.0), 40);
}

TEST_P(Dropout, IsNotThereInAnEvaluation) {
  GraphBuilder b({8});
  const ValueId x = b.Dropout(b.Linear("fc1", b.Dropout(b.Dropout(b.input(), 0.5), 0.5), 8), 0.9);
  b.SoftmaxCrossEntropy(b.Dropout(x, 0.5));
  GraphBuilder without({8});
  without.SoftmaxCrossEntropy(without.Linear("fc1", without.input(), 8));
  const std::unique_ptr<Executable> dropout =
      Compile(GetParam(), *std::move(b).Build(), {}, {.max_rows = 2});
  const Graph plain_model = *std::move(without).Build();
  const std::unique_ptr<Executable> plain = Compile(GetParam(), plain_model, {}, {.max_rows = 2});
  testing::RandomizeState(1, *dropout);
  testing::CopyState(*dropout, *plain);
  const TestBatch batch = testing::RandomBatch(1, plain_model, 2);
  EXPECT_EQ(*dropout->Predict(batch.inputs), *plain->Predict(batch.inputs));
  EXPECT_EQ(dropout->Evaluate(batch.batch())->loss_sum, plain->Evaluate(batch.batch())->loss_sum);
}

INSTANTIATE_TEST_SUITE_P(Backends, Dropout, ::testing::ValuesIn(testing::TestedAndReference()));

}  // namespace
}  // namespace trainyard::engine
