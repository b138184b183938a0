// Decides where to cut a model into the stages of a pipeline, so that the slowest stage is as fast
// as possible and each stage fits into its device. It is pure and exact, by dynamic programming
// over the possible cuts.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/types/span.h"

namespace trainyard::parallel {

struct PartitionProblem {
  // The time of each segment between two possible cuts, forward and backward, on a device of speed
  // 1.
  std::vector<double> segment_seconds;
  // The speed of each stage's device.
  std::vector<double> speeds;
  // Returns true if segments [begin, end) fit into the device of the stage. If it is empty, all
  // fit.
  std::function<bool(int stage, int begin, int end)> fits = {};
};

struct Partition {
  std::vector<int> first_segments;  // of stages 1, 2, ...
  double slowest_seconds = 0;
};

// Returns the best partition into speeds.size() stages of at least one segment, and among equally
// good ones the one that cuts first. Returns nothing if there are too few segments, or if none
// fits. It asks `fits` at most once for each stage and range that matters: O(stages * segments^2).
std::optional<Partition> SolvePartition(const PartitionProblem& problem);

}  // namespace trainyard::parallel
