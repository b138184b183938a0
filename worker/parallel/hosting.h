// Decides how many replicas each rank computes, by measured speed. These are pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/parallel/replicas.h"

namespace trainyard::parallel {

// The replicas of each rank. They are consecutive, without gap, and cover all replicas. A rank may
// host none.
using Hosting = std::vector<ReplicaRange>;

// Returns a hosting that is as even as possible, or INVALID_ARGUMENT if there are more ranks than
// replicas.
absl::StatusOr<Hosting> EvenHosting(int replicas, int world_size);

// Finds integers n_i >= 1 that minimise max_i n_i * seconds[i], the time of a step. `seconds`,
// above 0, is the time of one replica on that rank. Among equally good hostings it takes the one
// with the fewest terms (sum_tree.h), and among these the one where the first ranks host more.
// If there are too many to look at, it takes the best that it found. Takes O(replicas log ranks),
// and at most milliseconds for the search among equals.
Hosting SolveHosting(int replicas, absl::Span<const double> seconds);

// Returns the time of a step with that hosting, in seconds, without communication.
double StepSeconds(const Hosting& hosting, absl::Span<const double> seconds);

}  // namespace trainyard::parallel
