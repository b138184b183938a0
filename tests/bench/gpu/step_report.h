// Reports where the time of a step goes, compared with the best that the card could do.
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
  double seconds = 0;  // measured; 0 without a measurement
  double flops = 0;
  double bytes = 0;             // with each tensor read or written once
  double roofline_seconds = 0;  // 0 without rates
};

struct StepReport {
  std::vector<Part> calls;  // slowest first
  std::vector<Part> ops;    // slowest first
  Part total;
};

// The work of a training step of `rows` rows, by call, in the order of the graph. The time of the
// roofline is the longer of flops divided by the rate of products and bytes divided by that of
// copies, added up over the nodes. Values have the type of `precision`; parameters and their
// gradients are f32. `rates` may be null.
std::vector<Part> StepWork(const Graph& model, const OptimizerSpec& optimizer, Precision precision,
                           int64_t rows, const Rates* rates);
// Joins the work with measured times, each a median; `times` may be empty.
StepReport MakeReport(const std::vector<Part>& work, const std::vector<cuda::CallTime>& times);

// The name of the update among the calls of StepWork.
inline constexpr char kUpdateCall[] = "update";

nlohmann::json ToJson(const StepReport& report);
// Tables of the ops and of the `calls_max` slowest calls, as text.
std::string RenderReport(const StepReport& report, size_t calls_max);

}  // namespace trainyard::engine::bench
