// The one order in which the gradients of replicas are summed, whatever hosts them.
//
// A fixed binary tree stands over the replicas: node (level, i) holds the 2^level replicas from
// i * 2^level on, cut off at their number, and is the sum of its left half and its right half; a
// half that is cut off as a whole is left out. A rank that hosts consecutive replicas computes the
// largest nodes that lie wholly inside its range, its terms, each by itself; whoever sums over the
// ranks adds the terms as the tree says. So the bits depend on the number of replicas alone.
#pragma once

#include <vector>

#include "worker/parallel/replicas.h"

namespace trainyard::parallel {

// The terms of a rank that hosts `hosted` of `replicas`, in order: at most 2 log2(replicas) of
// them, and one where the hosting is even and both are powers of two.
std::vector<ReplicaRange> TermsOf(int replicas, ReplicaRange hosted);

// What to do with the gradients of one hosted replica once they have been computed into the
// reduction: add the slots to it, each as the left operand, the first one first; then store it in
// `store`, or leave it where it is (-1): the last term of the rank stays in the reduction.
struct ReplicaSum {
  std::vector<int> add;
  int store = -1;
};
// The whole plan of a rank.
struct LocalSums {
  std::vector<ReplicaSum> replicas;  // one a hosted replica
  std::vector<int> term_slots;       // where each term lies at the end; -1: the reduction
  int slots = 0;                     // used at all
};
LocalSums PlanLocalSums(int replicas, ReplicaRange hosted);

// How a list of terms becomes one sum: a program for a stack machine. kPush takes the next term,
// kAdd replaces the two on top by their sum (the lower one is the left operand). Begins with kPush;
// ends with one value on the stack.
enum class SumOp { kPush, kAdd };
struct SumPlan {
  std::vector<SumOp> ops;
  int depth = 1;  // of the stack
};
// Of the terms of all ranks, in rank order. `hosting` covers the replicas without gap.
SumPlan PlanTreeSum(int replicas, const std::vector<ReplicaRange>& hosting);
// Of one term a rank, added in rank order.
SumPlan PlanRankSum(int ranks);

}  // namespace trainyard::parallel
