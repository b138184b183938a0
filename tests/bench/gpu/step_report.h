// Where the time of a step goes, beside what the card could do at best.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/bench/gpu/rates.h"
#include "worker/engine/backend/cuda/program.h"
#include "worker/engine/graph/graph.h"
#include "worker/engine/optim/optimizer.h"

namespace trainyard::engine::bench {

// A call of a step, or all calls of an op.
struct Part {
  std::string name;
  int64_t calls = 0;
  double seconds = 0;  // measured; 0 where nothing was
  double flops = 0;
  double bytes = 0;             // each tensor read or written once
  double roofline_seconds = 0;  // 0 without rates
};

struct StepReport {
  std::vector<Part> calls;  // the slowest first
  std::vector<Part> ops;    // likewise
  Part total;
};

// What a training step of `rows` rows has to do, by call, in the order of the graph: the time of
// the roofline is the longer one of flops over the rate of products and bytes over that of copies,
// summed up over the nodes. Values lie in the type of `precision`, parameters and their gradients
// in f32. `rates` may be null.
std::vector<Part> StepWork(const Graph& model, const OptimizerSpec& optimizer, Precision precision,
                           int64_t rows, const Rates* rates);
// Together with measured times, each the middle of several; empty: none were taken.
StepReport MakeReport(const std::vector<Part>& work, const std::vector<cuda::CallTime>& times);

// The call that StepWork names for the update.
inline constexpr char kUpdateCall[] = "update";

nlohmann::json ToJson(const StepReport& report);
// Tables of the ops and of the `calls_max` slowest calls, for people.
std::string RenderReport(const StepReport& report, size_t calls_max);

}  // namespace trainyard::engine::bench
