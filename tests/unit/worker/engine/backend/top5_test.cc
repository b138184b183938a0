// Tests the count of labels among the five largest logits, on every backend.
#include <gtest/gtest.h>

#include <limits>
#include <utility>

#include "tests/unit/worker/engine/engine_testing.h"
#include "worker/engine/backend/judge.h"
#include "worker/engine/graph/graph_builder.h"

namespace trainyard::engine {
namespace {

using testing::Compile;
using testing::TestBatch;
using testing::Values;

constexpr int32_t kClasses = 8;

class TopFive : public ::testing::TestWithParam<std::string> {
 protected:
  // The logits of this network are its inputs.
  std::unique_ptr<Executable> Identity() {
    GraphBuilder builder({kClasses});
    builder.SoftmaxCrossEntropy(builder.Linear("fc", builder.input(), kClasses));
    auto executable = Compile(GetParam(), *std::move(builder).Build(), {}, {.max_rows = kClasses});
    Values identity(size_t{kClasses} * kClasses, 0.0F);
    for (size_t i = 0; i < kClasses; ++i) identity[i * (kClasses + 1)] = 1;
    testing::WriteState(*executable, "fc.weight", identity);
    testing::WriteState(*executable, "fc.bias", Values(kClasses, 0.0F));
    return executable;
  }
  // The batch has the same row once with each label.
  static TestBatch Labelled(const Values& row) {
    TestBatch batch;
    for (int32_t label = 0; label < kClasses; ++label) {
      batch.inputs.insert(batch.inputs.end(), row.begin(), row.end());
      batch.labels.push_back(label);
    }
    return batch;
  }
};

TEST_P(TopFive, OfEqualLogitsTheFirstComeFirst) {
  const auto executable = Identity();
  for (const Values& row : {Values{8, 7, 6, 5, 4, 3, 2, 1}, Values(kClasses, 0.5F)}) {
    const TestBatch batch = Labelled(row);
    for (int64_t label = 0; label < kClasses; ++label) {
      const auto one = executable->Evaluate(batch.Rows(label, label + 1).batch());
      ASSERT_TRUE(one.ok()) << one.status();
      EXPECT_EQ(one->top5, label < kTopCount ? 1 : 0) << label;
      EXPECT_EQ(one->correct, label == 0 ? 1 : 0) << label;
    }
    const auto all = executable->Evaluate(batch.batch());
    ASSERT_TRUE(all.ok()) << all.status();
    EXPECT_EQ(all->top5, 5);
    EXPECT_EQ(all->correct, 1);
  }
  const auto rising = executable->Evaluate(Labelled({1, 2, 3, 4, 5, 6, 7, 8}).Rows(3, 8).batch());
  EXPECT_EQ(rising->top5, 5);
}

INSTANTIATE_TEST_SUITE_P(Backends, TopFive, ::testing::ValuesIn(testing::AllBackends()),
                         [](const auto& instance) { return std::string(instance.param); });

TEST(IsInTop, WhatIsNotANumberIsNoPredictionAndComesBeforeOthers) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double logits[] = {nan, nan, nan, nan, nan, 1, 2};
  EXPECT_FALSE(IsInTop(logits, 7, 0));
  EXPECT_FALSE(IsInTop(logits, 7, 6));
  const double fewer[] = {nan, nan, nan, 0, 1, 2};
  EXPECT_TRUE(IsInTop(fewer, 6, 4));
  EXPECT_FALSE(IsInTop(fewer, 6, 3));
}

}  // namespace
}  // namespace trainyard::engine
