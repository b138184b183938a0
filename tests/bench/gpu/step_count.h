// Counts what a training step launches, computes and moves, without running it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "tests/bench/gpu/step_timer.h"
#include "worker/engine/backend/backend.h"

namespace trainyard::engine::bench {

// The rates by which a step is estimated.
struct CountRates {
  double bytes_per_second = 0;
  double flops_per_second = 0;
  double seconds_per_kernel = 0;
  double seconds_per_launch = 0;
};
// Returns those of an H200: memory at the speed of copies, products of this precision, the time of
// a node of a graph, and that of launching the graph.
CountRates RatesOfH200(Precision precision);

// All calls of an op, or of a step.
struct OpCount {
  std::string op;
  int64_t calls = 0;
  int64_t kernels = 0;
  double flops = 0;
  double bytes = 0;
  // The longer of the times for bytes and for flops of each call, the bytes of further kernels of a
  // call, and the time of the kernels' nodes; for a step, also that of the launch.
  double seconds = 0;
};

struct StepCount {
  std::vector<OpCount> ops;  // those that take the longest first
  OpCount total;
  std::vector<Fallback> fallbacks;  // which take longer than estimated
};

// Plans the step on the current device, and counts. Nothing is allocated or measured there.
absl::StatusOr<StepCount> CountStep(const TimerOptions& options);
StepCount CountWork(const std::vector<CallWork>& work, const CountRates& rates);

nlohmann::json ToJson(const StepCount& count);
std::string RenderCount(const StepCount& count);
// Returns the line of the table in docs/cuda.md.
std::string CountLine(const TimerOptions& options, const StepCount& count);

}  // namespace trainyard::engine::bench
