// Tests that sums along the tree depend only on the number of replicas.
#include "worker/parallel/sum_tree.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trainyard::parallel {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Hosting = std::vector<ReplicaRange>;
constexpr int kReplicasMax = 17;
constexpr int kRanksMax = 5;

// Calls `visit` with every way to host `replicas` in `ranks` consecutive ranges, which may be
// empty.
void ForEachHosting(int replicas, int ranks, const std::function<void(const Hosting&)>& visit) {
  Hosting hosting;
  const std::function<void(int)> host_from = [&](int begin) {
    const bool is_last = static_cast<int>(hosting.size()) + 1 == ranks;
    for (int end = is_last ? replicas : begin; end <= replicas; ++end) {
      hosting.push_back({begin, end});
      is_last ? visit(hosting) : host_from(end);
      hosting.pop_back();
    }
  };
  host_from(0);
}

// The values of a rank's terms when the gradient of each hosted replica is leaf(replica).
template <typename Value, typename Leaf, typename Add>
std::vector<Value> TermValues(const LocalSums& plan, ReplicaRange hosted, Leaf leaf, Add add) {
  EXPECT_EQ(plan.replicas.size(), static_cast<size_t>(hosted.end - hosted.begin));
  std::vector<Value> slots(static_cast<size_t>(plan.slots));
  Value reduction = {};
  for (size_t i = 0; i < plan.replicas.size(); ++i) {
    reduction = leaf(hosted.begin + static_cast<int>(i));
    for (const int slot : plan.replicas[i].add) {
      reduction = add(slots.at(static_cast<size_t>(slot)), reduction);
    }
    const int store = plan.replicas[i].store;
    EXPECT_EQ(store == -1, i + 1 == plan.replicas.size());
    if (store >= 0) slots.at(static_cast<size_t>(store)) = std::exchange(reduction, {});
  }
  std::vector<Value> terms;
  for (const int slot : plan.term_slots) {
    terms.push_back(slot < 0 ? reduction : slots.at(static_cast<size_t>(slot)));
  }
  return terms;
}

template <typename Value, typename Add>
Value Evaluate(const SumPlan& plan, const std::vector<Value>& terms, Add add) {
  std::vector<Value> stack;
  size_t next = 0;
  int deepest = 0;
  for (const SumOp op : plan.ops) {
    if (op == SumOp::kPush) {
      stack.push_back(terms.at(next++));
    } else {
      const Value right = stack.back();
      stack.pop_back();
      stack.back() = add(stack.back(), right);
    }
    deepest = std::max(deepest, static_cast<int>(stack.size()));
  }
  EXPECT_EQ(next, terms.size());
  EXPECT_EQ(stack.size(), 1U);
  EXPECT_EQ(deepest, plan.depth);
  return stack.back();
}

template <typename Value, typename Leaf, typename Add>
Value SumOverHosting(int replicas, const Hosting& hosting, Leaf leaf, Add add) {
  std::vector<Value> terms;
  for (const ReplicaRange hosted : hosting) {
    const auto of_rank = TermValues<Value>(PlanLocalSums(replicas, hosted), hosted, leaf, add);
    EXPECT_EQ(of_rank.size(), TermsOf(replicas, hosted).size());
    terms.insert(terms.end(), of_rank.begin(), of_rank.end());
  }
  return Evaluate<Value>(PlanTreeSum(replicas, hosting), terms, add);
}

std::string Letter(int replica) {
  return std::string(1, static_cast<char>('a' + replica));
}

std::string AddText(const std::string& left, const std::string& right) {
  return absl::StrCat("(", left, "+", right, ")");
}

std::string Expression(int replicas, const Hosting& hosting) {
  return SumOverHosting<std::string>(replicas, hosting, Letter, AddText);
}

TEST(SumTree, IsBinaryAndCutOffAtTheNumberOfReplicas) {
  EXPECT_EQ(Expression(1, {{0, 1}}), "a");
  EXPECT_EQ(Expression(2, {{0, 2}}), "(a+b)");
  EXPECT_EQ(Expression(3, {{0, 3}}), "((a+b)+c)");
  EXPECT_EQ(Expression(6, {{0, 6}}), "(((a+b)+(c+d))+(e+f))");
  EXPECT_EQ(Expression(7, {{0, 7}}), "(((a+b)+(c+d))+((e+f)+g))");
}

TEST(SumTree, EveryHostingComputesTheSameExpression) {
  for (int replicas = 1; replicas <= kReplicasMax; ++replicas) {
    const std::string alone = Expression(replicas, {{0, replicas}});
    for (int ranks = 1; ranks <= kRanksMax; ++ranks) {
      ForEachHosting(replicas, ranks, [&](const Hosting& hosting) {
        ASSERT_EQ(Expression(replicas, hosting), alone)
            << replicas << " replicas on " << ranks << " ranks";
      });
    }
  }
}

TEST(SumTree, EveryHostingGivesTheSameBits) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (int replicas = 2; replicas <= kReplicasMax; ++replicas) {
    std::vector<float> gradients(static_cast<size_t>(replicas));
    for (float& gradient : gradients) {
      // Sizes differ so much that every other order would round differently.
      gradient = std::ldexp(normal(random), static_cast<int>(random() % 12));
    }
    const auto leaf = [&](int replica) { return gradients[static_cast<size_t>(replica)]; };
    const auto add = [](float left, float right) { return left + right; };
    const auto alone = SumOverHosting<float>(replicas, {{0, replicas}}, leaf, add);
    for (int ranks = 2; ranks <= 3; ++ranks) {
      ForEachHosting(replicas, ranks, [&](const Hosting& hosting) {
        const auto sum = SumOverHosting<float>(replicas, hosting, leaf, add);
        ASSERT_EQ(std::bit_cast<uint32_t>(sum), std::bit_cast<uint32_t>(alone));
      });
    }
  }
}

TEST(SumTree, SlotsAndTermsStayFewForEveryRange) {
  for (int replicas = 1; replicas <= 130; ++replicas) {
    const auto levels = static_cast<int>(std::bit_width(static_cast<unsigned>(replicas - 1)));
    for (int begin = 0; begin <= replicas; ++begin) {
      for (int end = begin; end <= replicas; ++end) {
        const LocalSums plan = PlanLocalSums(replicas, {begin, end});
        ASSERT_LE(plan.term_slots.size(), static_cast<size_t>(std::max(1, 2 * levels)));
        ASSERT_LE(plan.slots, 2 * levels);
      }
    }
  }
}

TEST(SumTree, AnEvenHostingOfPowersOfTwoHasOneTermARank) {
  EXPECT_THAT(TermsOf(8, {4, 6}), ElementsAre(ReplicaRange{4, 6}));
  EXPECT_THAT(PlanLocalSums(8, {4, 6}).term_slots, ElementsAre(-1));
  EXPECT_EQ(PlanLocalSums(8, {4, 5}).slots, 0);
  EXPECT_EQ(PlanLocalSums(1 << 10, {0, 1 << 10}).slots, 10);
}

TEST(SumTree, TermsAreTheLargestNodesInside) {
  EXPECT_THAT(TermsOf(8, {1, 7}), ElementsAre(ReplicaRange{1, 2}, ReplicaRange{2, 4},
                                              ReplicaRange{4, 6}, ReplicaRange{6, 7}));
  // The last node is cut off, and still lies wholly inside.
  EXPECT_THAT(TermsOf(7, {4, 7}), ElementsAre(ReplicaRange{4, 7}));
  EXPECT_THAT(TermsOf(7, {3, 7}), ElementsAre(ReplicaRange{3, 4}, ReplicaRange{4, 7}));
}

TEST(SumTree, ARankWithoutReplicasHasNoTerms) {
  EXPECT_THAT(TermsOf(4, {2, 2}), IsEmpty());
  EXPECT_THAT(PlanLocalSums(4, {2, 2}).replicas, IsEmpty());
  EXPECT_THAT(PlanLocalSums(4, {0, 0}).term_slots, IsEmpty());
  EXPECT_EQ(Expression(4, {{0, 0}, {0, 3}, {3, 3}, {3, 4}}), "((a+b)+(c+d))");
}

TEST(SumTree, RanksOfOneTermAddUpInTheirOrder) {
  const std::vector<std::string> terms = {"a", "b", "c", "d"};
  EXPECT_EQ(Evaluate<std::string>(PlanRankSum(4), terms, AddText), "(((a+b)+c)+d)");
  EXPECT_EQ(Evaluate<std::string>(PlanRankSum(1), {"a"}, AddText), "a");
}

}  // namespace
}  // namespace trainyard::parallel
