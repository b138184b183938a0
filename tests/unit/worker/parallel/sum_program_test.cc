// Compares sums of terms with the plan run by hand, element by element.
#include "worker/parallel/sum_program.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace trainyard::parallel {
namespace {

using Floats = std::vector<float>;

// Sizes differ so much that another order of the sums has other bits.
std::vector<Floats> RandomTerms(size_t terms, size_t count) {
  std::mt19937 random(7);
  std::uniform_real_distribution<float> mantissa(-1, 1);
  std::uniform_int_distribution<int> exponent(-12, 12);
  std::vector<Floats> values(terms, Floats(count));
  for (Floats& term : values) {
    for (float& value : term) value = std::ldexp(mantissa(random), exponent(random));
  }
  return values;
}

Floats Expected(const SumPlan& plan, const std::vector<Floats>& terms) {
  Floats sums(terms[0].size());
  for (size_t i = 0; i < sums.size(); ++i) {
    Floats stack;
    size_t next = 0;
    for (const SumOp op : plan.ops) {
      if (op == SumOp::kPush) {
        stack.push_back(terms[next++][i]);
      } else {
        const float right = stack.back();
        stack.pop_back();
        stack.back() += right;
      }
    }
    sums[i] = stack.back();
  }
  return sums;
}

std::vector<const float*> Pointers(const std::vector<Floats>& terms) {
  std::vector<const float*> pointers;
  pointers.reserve(terms.size());
  for (const Floats& term : terms) pointers.push_back(term.data());
  return pointers;
}

struct Case {
  SumPlan plan;
  size_t terms;
};

std::vector<Case> Cases() {
  return {
      {PlanRankSum(1), 1},
      {PlanRankSum(2), 2},
      {PlanRankSum(5), 5},
      {PlanTreeSum(8, {{0, 2}, {2, 4}, {4, 6}, {6, 8}}), 4},
      // The right operands are sums themselves.
      {PlanTreeSum(8, {{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}, {5, 6}, {6, 7}, {7, 8}}), 8},
  };
}

TEST(SumProgram, AddsInTheOrderOfThePlanWhateverTheLength) {
  for (const Case& c : Cases()) {
    for (const size_t count : {size_t{0}, size_t{1}, size_t{7}, size_t{2048}, size_t{5003}}) {
      const std::vector<Floats> terms = RandomTerms(c.terms, count);
      SumProgram program(c.plan);
      Floats first(count, 3.0f);
      Floats second(count, 4.0f);
      float* const targets[] = {first.data(), second.data()};
      program.Run(Pointers(terms), count, targets);
      EXPECT_EQ(first, Expected(c.plan, terms));
      EXPECT_EQ(second, first);
    }
  }
}

TEST(SumProgram, MayOverwriteItsTerms) {
  for (const Case& c : Cases()) {
    for (size_t overwritten = 0; overwritten < c.terms; ++overwritten) {
      std::vector<Floats> terms = RandomTerms(c.terms, 5003);
      const Floats expected = Expected(c.plan, terms);
      Floats other(5003);
      float* const targets[] = {terms[overwritten].data(), other.data()};
      SumProgram(c.plan).Run(Pointers(terms), 5003, targets);
      EXPECT_EQ(terms[overwritten], expected);
      EXPECT_EQ(other, expected);
    }
  }
}

TEST(SumProgram, BeginsAnywhere) {
  const std::vector<Floats> terms = RandomTerms(4, 4100);
  const SumPlan plan = PlanRankSum(4);
  const Floats expected = Expected(plan, terms);
  SumProgram program(plan);
  for (const size_t begin : {size_t{1}, size_t{13}, size_t{2047}}) {
    std::vector<const float*> from = Pointers(terms);
    for (const float*& term : from) term += begin;
    Floats sums(4100 - begin);
    float* const targets[] = {sums.data()};
    program.Run(from, sums.size(), targets);
    EXPECT_EQ(sums, Floats(expected.begin() + static_cast<int64_t>(begin), expected.end()));
  }
}

}  // namespace
}  // namespace trainyard::parallel
