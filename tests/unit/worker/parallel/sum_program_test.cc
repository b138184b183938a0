#include "worker/parallel/sum_program.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <random>

#include "gtest/gtest.h"

namespace trainyard::parallel {
namespace {

std::vector<float> Random(size_t size, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(size);
  for (float& value : values) value = std::ldexp(normal(random), static_cast<int>(random() % 9));
  return values;
}

float Evaluate(const SumPlan& plan, const std::vector<std::vector<float>>& terms, size_t i) {
  std::vector<float> stack;
  size_t next = 0;
  for (const SumOp op : plan.ops) {
    if (op == SumOp::kPush) {
      stack.push_back(terms[next++][i]);
      continue;
    }
    const float right = stack.back();
    stack.pop_back();
    stack.back() += right;
  }
  return stack.back();
}

// The sums lie in memory of their own (-1), or in that of a term.
void ExpectSums(const SumPlan& plan, size_t terms, size_t size, int in_place) {
  std::vector<std::vector<float>> values;
  std::vector<const float*> pointers;
  for (size_t term = 0; term < terms; ++term) {
    values.push_back(Random(size, static_cast<uint32_t>(term)));
  }
  const std::vector<std::vector<float>> before = values;
  for (const std::vector<float>& term : values) pointers.push_back(term.data());
  std::vector<float> apart(size);
  std::vector<float>& target = in_place < 0 ? apart : values[static_cast<size_t>(in_place)];
  SumProgram program(plan);
  ASSERT_EQ(program.terms(), terms);
  program.Run(pointers, size, target.data());
  for (size_t i = 0; i < size; ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(target[i]),
              std::bit_cast<uint32_t>(Evaluate(plan, before, i)))
        << "element " << i << " of " << size << ", in place of " << in_place;
  }
  for (size_t term = 0; term < terms; ++term) {
    ASSERT_TRUE(static_cast<int>(term) == in_place || values[term] == before[term]);
  }
}

TEST(SumProgram, AddsAsThePlanSaysWhereverTheSumGoes) {
  const std::vector<ReplicaRange> alone = {{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}, {5, 6}, {6, 7}};
  for (const size_t size : {size_t{0}, size_t{1}, size_t{2047}, size_t{2048}, size_t{5001}}) {
    for (int in_place = -1; in_place < 7; ++in_place) {
      ExpectSums(PlanTreeSum(7, alone), 7, size, in_place);
      ExpectSums(PlanRankSum(7), 7, size, in_place);
    }
    for (int in_place = -1; in_place < 2; ++in_place) {
      ExpectSums(PlanRankSum(2), 2, size, in_place);
    }
    for (int in_place = -1; in_place < 1; ++in_place) {
      ExpectSums(PlanRankSum(1), 1, size, in_place);
    }
  }
}

}  // namespace
}  // namespace trainyard::parallel
