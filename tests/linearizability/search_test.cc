// The model of these tests is a register that starts at 0.
#include "tests/linearizability/search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trainyard::linearizability {
namespace {

struct RegisterOp {
  bool is_write = false;
  int value = 0;
  Interval time;
};

RegisterOp Write(int value, int64_t call, int64_t end = kNever) {
  return {true, value, {call, end, -1}};
}

RegisterOp Read(int value, int64_t call, int64_t end) {
  return {false, value, {call, end, -1}};
}

Finding Find(const std::vector<RegisterOp>& operations, int64_t steps_max = 100'000) {
  std::vector<Interval> intervals;
  for (const RegisterOp& operation : operations) intervals.push_back(operation.time);
  const auto step = [&](int state, size_t i) -> std::optional<int> {
    if (operations[i].is_write) return operations[i].value;
    return operations[i].value == state ? std::optional<int>(state) : std::nullopt;
  };
  return FindOrder(intervals, 0, step, steps_max);
}

TEST(FindOrder, NothingIsExplained) {
  EXPECT_EQ(Find({}).verdict, Verdict::kExplained);
}

TEST(FindOrder, OverlappingOperationsMayHappenInEitherOrder) {
  EXPECT_EQ(Find({Write(1, 0, 10), Read(0, 1, 9)}).verdict, Verdict::kExplained);
  EXPECT_EQ(Find({Write(1, 0, 10), Read(1, 1, 9)}).verdict, Verdict::kExplained);
  EXPECT_EQ(Find({Write(1, 0, 10), Read(2, 1, 9)}).verdict, Verdict::kUnexplained);
}

TEST(FindOrder, AReadAfterAWriteSeesIt) {
  const Finding finding = Find({Write(1, 0, 2), Read(0, 3, 4)});
  EXPECT_EQ(finding.verdict, Verdict::kUnexplained);
  EXPECT_THAT(finding.longest, ::testing::ElementsAre(0));
  EXPECT_EQ(finding.stuck, 1u);
}

TEST(FindOrder, TheOrderThatWasFoundIsReturned) {
  const Finding finding = Find({Read(2, 0, 10), Write(2, 1, 3), Write(1, 0, 2), Read(2, 4, 6)});
  ASSERT_EQ(finding.verdict, Verdict::kExplained);
  EXPECT_THAT(finding.longest, ::testing::UnorderedElementsAre(0, 1, 2, 3));
}

// Two reads may not see two writes in different orders.
TEST(FindOrder, OneOrderMustServeAllReaders) {
  EXPECT_EQ(Find({Write(1, 0, 100), Write(2, 0, 100), Read(1, 1, 2), Read(2, 3, 4)}).verdict,
            Verdict::kExplained);
  EXPECT_EQ(Find({Write(1, 0, 100), Write(2, 0, 100), Read(1, 1, 2), Read(2, 3, 4), Read(1, 5, 6)})
                .verdict,
            Verdict::kUnexplained);
}

TEST(FindOrder, AnUnknownWriteMayHaveHappenedLateOrNever) {
  EXPECT_EQ(Find({Write(1, 0), Read(0, 10, 11)}).verdict, Verdict::kExplained);
  EXPECT_EQ(Find({Write(1, 0), Read(0, 10, 11), Read(1, 12, 13)}).verdict, Verdict::kExplained);
}

TEST(FindOrder, AnUnknownWriteHappensOnceAndNotBeforeItsCall) {
  EXPECT_EQ(Find({Write(1, 0), Write(2, 0, 5), Read(1, 6, 7), Read(2, 8, 9)}).verdict,
            Verdict::kUnexplained);
  EXPECT_EQ(Find({Read(1, 0, 5), Write(1, 6)}).verdict, Verdict::kUnexplained);
}

TEST(FindOrder, AnOperationWaitsForTheOneThatItFollows) {
  std::vector<RegisterOp> operations = {Read(0, 0, 10), Write(1, 0, 10)};
  operations[0].time.after = 1;
  EXPECT_EQ(Find(operations).verdict, Verdict::kUnexplained);
  operations[0].value = 1;
  EXPECT_EQ(Find(operations).verdict, Verdict::kExplained);
}

TEST(FindOrder, GivesUpAfterItsSteps) {
  std::vector<RegisterOp> operations;
  for (int i = 1; i <= 30; ++i) operations.push_back(Write(i, 0, 100));
  operations.push_back(Read(-1, 0, 100));
  EXPECT_EQ(Find(operations, 1000).verdict, Verdict::kGaveUp);
}

// Without the memory of what was tried, this would take 2^200 steps.
TEST(FindOrder, RemembersWhatItTried) {
  std::vector<RegisterOp> operations;
  for (int i = 0; i < 100; ++i) {
    operations.push_back(Write(1, 10 * i, 10 * i + 5));
    operations.push_back(Write(1, 10 * i, 10 * i + 5));
  }
  operations.push_back(Read(2, 2000, 2001));
  const Finding finding = Find(operations);
  EXPECT_EQ(finding.verdict, Verdict::kUnexplained);
  EXPECT_LT(finding.steps, 2000);
}

}  // namespace
}  // namespace trainyard::linearizability
