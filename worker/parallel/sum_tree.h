// Defines the one order in which the gradients of replicas are summed, whichever ranks host them.
//
// A fixed binary tree stands over the replicas. Node (level, i) holds the 2^level replicas from i *
// 2^level on, cut off at their number, and is the sum of its left half and its right half; a half
// that is cut off entirely is left out. A rank that hosts consecutive replicas computes the largest
// nodes that lie wholly inside its range, each by itself. They are its terms. The sum over the
// ranks then adds the terms as the tree says. So the bits depend only on the number of replicas.
#pragma once

#include <vector>

#include "worker/parallel/replicas.h"

namespace trainyard::parallel {

// Returns the terms of a rank that hosts `hosted` of `replicas`, in order. There are at most 2
// log2(replicas) of them, and one if the hosting is even and both numbers are powers of two.
std::vector<ReplicaRange> TermsOf(int replicas, ReplicaRange hosted);

// The instructions for the gradients of one hosted replica once they have been computed into the
// reduction. The slots of `add` are added to it in order, each as the left operand. Then the sum is
// stored in slot `store`, or stays where it is (-1): the last term of the rank stays in the
// reduction.
struct ReplicaSum {
  std::vector<int> add;
  int store = -1;
};
// The whole plan of a rank.
struct LocalSums {
  std::vector<ReplicaSum> replicas;  // one for each hosted replica
  std::vector<int> term_slots;       // where each term lies at the end; -1: the reduction
  int slots = 0;                     // the number that is used
};
LocalSums PlanLocalSums(int replicas, ReplicaRange hosted);

// The way in which a list of terms becomes one sum: a program for a stack machine. kPush takes the
// next term; kAdd replaces the two topmost values by their sum, with the lower one as the left
// operand. It begins with kPush and ends with one value on the stack.
enum class SumOp { kPush, kAdd };
struct SumPlan {
  std::vector<SumOp> ops;
  int depth = 1;  // of the stack
};
// Returns the plan that adds the terms of all ranks along the tree. `hosting` lists the replicas in
// rank order, without gap.
SumPlan PlanTreeSum(int replicas, const std::vector<ReplicaRange>& hosting);
// Returns the plan that adds one term of each rank, in rank order.
SumPlan PlanRankSum(int ranks);

}  // namespace trainyard::parallel
