// Plans sums along the fixed tree over the replicas.
#include "worker/parallel/sum_tree.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "common/base/check.h"

namespace trainyard::parallel {
namespace {

// Returns the two halves of a node of more than one replica. Neither is empty. The node begins at a
// multiple of the first half's size, and the second half lacks what is cut off at the end.
std::pair<ReplicaRange, ReplicaRange> Halves(ReplicaRange node) {
  const auto size = static_cast<unsigned>(node.end - node.begin);
  const int middle = node.begin + static_cast<int>(std::bit_ceil(size) / 2);
  return {{node.begin, middle}, {middle, node.end}};
}

bool IsInside(ReplicaRange node, ReplicaRange range) {
  return range.begin <= node.begin && node.end <= range.end;
}

void AppendTerms(ReplicaRange node, ReplicaRange hosted, std::vector<ReplicaRange>& terms) {
  if (std::max(node.begin, hosted.begin) >= std::min(node.end, hosted.end)) return;
  if (IsInside(node, hosted)) {
    terms.push_back(node);
    return;
  }
  const auto [left, right] = Halves(node);
  AppendTerms(left, hosted, terms);
  AppendTerms(right, hosted, terms);
}

class LocalPlanner {
 public:
  // Leaves the node's sum in the reduction.
  void Sum(ReplicaRange node) {
    if (node.end - node.begin == 1) {
      sums_.replicas.emplace_back();
      return;
    }
    const auto [left, right] = Halves(node);
    Sum(left);
    const int slot = StoreLast();
    Sum(right);
    sums_.replicas.back().add.push_back(slot);
    is_used_[static_cast<size_t>(slot)] = false;
  }

  // Moves the contents of the reduction to a free slot.
  int StoreLast() {
    const auto free = std::find(is_used_.begin(), is_used_.end(), false);
    const auto slot = static_cast<int>(free - is_used_.begin());
    if (free == is_used_.end()) is_used_.push_back(true);
    is_used_[static_cast<size_t>(slot)] = true;
    sums_.replicas.back().store = slot;
    return slot;
  }

  void AddTerm(int slot) { sums_.term_slots.push_back(slot); }

  LocalSums Take() {
    sums_.slots = static_cast<int>(is_used_.size());
    return std::move(sums_);
  }

 private:
  LocalSums sums_;
  std::vector<bool> is_used_;  // by slot
};

void AppendSum(ReplicaRange node, const std::vector<ReplicaRange>& hosting, SumPlan& plan) {
  const bool is_term = std::any_of(hosting.begin(), hosting.end(),
                                   [&](ReplicaRange hosted) { return IsInside(node, hosted); });
  if (is_term) {
    plan.ops.push_back(SumOp::kPush);
    return;
  }
  const auto [left, right] = Halves(node);
  AppendSum(left, hosting, plan);
  AppendSum(right, hosting, plan);
  plan.ops.push_back(SumOp::kAdd);
}

int DepthOf(const std::vector<SumOp>& ops) {
  int depth = 0, deepest = 0;
  for (const SumOp op : ops) {
    depth += op == SumOp::kPush ? 1 : -1;
    deepest = std::max(deepest, depth);
  }
  return deepest;
}

}  // namespace

std::vector<ReplicaRange> TermsOf(int replicas, ReplicaRange hosted) {
  TY_CHECK(0 <= hosted.begin && hosted.begin <= hosted.end && hosted.end <= replicas);
  std::vector<ReplicaRange> terms;
  AppendTerms({0, replicas}, hosted, terms);
  return terms;
}

LocalSums PlanLocalSums(int replicas, ReplicaRange hosted) {
  const std::vector<ReplicaRange> terms = TermsOf(replicas, hosted);
  LocalPlanner planner;
  for (size_t i = 0; i < terms.size(); ++i) {
    planner.Sum(terms[i]);
    const bool is_last = i + 1 == terms.size();
    planner.AddTerm(is_last ? -1 : planner.StoreLast());
  }
  return planner.Take();
}

SumPlan PlanTreeSum(int replicas, const std::vector<ReplicaRange>& hosting) {
  int next = 0;
  for (const ReplicaRange hosted : hosting) {
    TY_CHECK(hosted.begin == next && hosted.end >= next);
    next = hosted.end;
  }
  TY_CHECK(replicas >= 1 && next == replicas);
  SumPlan plan;
  AppendSum({0, replicas}, hosting, plan);
  plan.depth = DepthOf(plan.ops);
  return plan;
}

SumPlan PlanRankSum(int ranks) {
  TY_CHECK(ranks >= 1);
  SumPlan plan{.ops = {SumOp::kPush}};
  for (int rank = 1; rank < ranks; ++rank) {
    plan.ops.insert(plan.ops.end(), {SumOp::kPush, SumOp::kAdd});
  }
  plan.depth = DepthOf(plan.ops);
  return plan;
}

}  // namespace trainyard::parallel
