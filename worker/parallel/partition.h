// Where to cut a model into the stages of a pipeline: so that the slowest stage is as fast as can
// be, and each fits into its device. Pure; exact, by dynamic programming over the possible cuts.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/types/span.h"

namespace trainyard::parallel {

struct PartitionProblem {
  // Of what lies between two possible cuts, on a device of speed 1; forward and backward.
  std::vector<double> segment_seconds;
  // By stage: how fast its device is.
  std::vector<double> speeds;
  // Whether segments [begin, end) fit into the device of the stage; empty: all do.
  std::function<bool(int stage, int begin, int end)> fits = {};
};

struct Partition {
  std::vector<int> first_segments;  // of stages 1, 2, ...
  double slowest_seconds = 0;
};

// The best partition into speeds.size() stages of at least one segment; of equally good ones the
// one that cuts first. Nothing where there are fewer segments, or none fits. Asks `fits` at most
// once for each stage and range that matters: O(stages * segments^2).
std::optional<Partition> SolvePartition(const PartitionProblem& problem);

}  // namespace trainyard::parallel
