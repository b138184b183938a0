// Finds the best cuts by dynamic programming.
#include "worker/parallel/partition.h"

#include <algorithm>
#include <cstddef>
#include <limits>

namespace trainyard::parallel {
namespace {

constexpr double kImpossible = std::numeric_limits<double>::infinity();

}  // namespace

std::optional<Partition> SolvePartition(const PartitionProblem& problem) {
  const size_t segments = problem.segment_seconds.size();
  const size_t stages = problem.speeds.size();
  std::vector<double> until(segments + 1, 0);  // seconds of all segments before it
  for (size_t i = 0; i < segments; ++i) until[i + 1] = until[i] + problem.segment_seconds[i];

  // slowest[s][end] is the time of the slowest of stages [0, s) over segments [0, end), and
  // begun[s][end] is where the last of them begins.
  std::vector<std::vector<double>> slowest(stages + 1,
                                           std::vector<double>(segments + 1, kImpossible));
  std::vector<std::vector<size_t>> begun(stages + 1, std::vector<size_t>(segments + 1, 0));
  slowest[0][0] = 0;
  for (size_t s = 1; s <= stages; ++s) {
    for (size_t end = s; end <= segments; ++end) {
      for (size_t begin = s - 1; begin < end; ++begin) {
        const double mine = (until[end] - until[begin]) / problem.speeds[s - 1];
        const double all = std::max(slowest[s - 1][begin], mine);
        if (all < slowest[s][end] &&
            (!problem.fits || problem.fits(static_cast<int>(s) - 1, static_cast<int>(begin),
                                           static_cast<int>(end)))) {
          slowest[s][end] = all;
          begun[s][end] = begin;
        }
      }
    }
  }
  if (stages == 0 || slowest[stages][segments] == kImpossible) return std::nullopt;
  Partition partition{.first_segments = {}, .slowest_seconds = slowest[stages][segments]};
  size_t end = segments;
  for (size_t s = stages; s > 1; --s) {
    end = begun[s][end];
    partition.first_segments.push_back(static_cast<int>(end));
  }
  std::reverse(partition.first_segments.begin(), partition.first_segments.end());
  return partition;
}

}  // namespace trainyard::parallel
