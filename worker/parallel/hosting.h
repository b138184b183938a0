// Which rank computes how many replicas, by measured speed. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/parallel/replicas.h"

namespace trainyard::parallel {

// By rank; consecutive, without gap, covering all replicas. A rank may host none.
using Hosting = std::vector<ReplicaRange>;

// As even as possible. INVALID_ARGUMENT where there are more ranks than replicas.
absl::StatusOr<Hosting> EvenHosting(int replicas, int world_size);

// Integers n_i >= 1 that minimise max_i n_i * seconds[i], the time of a step; `seconds`: of one
// replica on that rank, > 0. Of equally good ones the one with the fewest terms (sum_tree.h), then
// the one where the first ranks host more; where these are too many to look at, the best found.
// Takes O(replicas log ranks), and what the search among equals takes, at most milliseconds.
Hosting SolveHosting(int replicas, absl::Span<const double> seconds);

// What a step takes with that hosting, in seconds, without communication.
double StepSeconds(const Hosting& hosting, absl::Span<const double> seconds);

}  // namespace trainyard::parallel
