// Plans a step, and adds up the work of its calls.
#include "tests/bench/gpu/step_count.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "worker/engine/backend/cuda/cuda_backend.h"

namespace trainyard::engine::bench {
namespace {

void AddTo(OpCount& sum, const OpCount& part) {
  sum.calls += part.calls;
  sum.kernels += part.kernels;
  sum.flops += part.flops;
  sum.bytes += part.bytes;
  sum.seconds += part.seconds;
}

nlohmann::json ToJson(const OpCount& count) {
  return {{"op", count.op},       {"calls", count.calls}, {"kernels", count.kernels},
          {"flops", count.flops}, {"bytes", count.bytes}, {"seconds", count.seconds}};
}

}  // namespace

CountRates RatesOfH200(Precision precision) {
  CountRates rates = {.bytes_per_second = 4.0e12,
                      .flops_per_second = 700e12,
                      .seconds_per_kernel = 1.5e-6,
                      .seconds_per_launch = 6e-6};
  if (precision == Precision::kTf32) rates.flops_per_second /= 2;
  if (precision == Precision::kF32) rates.flops_per_second = 50e12;
  return rates;
}

StepCount CountWork(const std::vector<CallWork>& work, const CountRates& rates) {
  StepCount count;
  std::map<std::string, OpCount> by_op;
  for (const CallWork& call : work) {
    const OpCount part = {.op = call.op,
                          .calls = 1,
                          .kernels = call.kernels,
                          .flops = call.flops,
                          .bytes = call.bytes + call.more_bytes,
                          .seconds = std::max(call.bytes / rates.bytes_per_second,
                                              call.flops / rates.flops_per_second) +
                                     call.more_bytes / rates.bytes_per_second +
                                     static_cast<double>(call.kernels) * rates.seconds_per_kernel};
    AddTo(by_op[call.op], part);
    AddTo(count.total, part);
  }
  for (auto& [op, part] : by_op) {
    part.op = op;
    count.ops.push_back(part);
  }
  std::stable_sort(count.ops.begin(), count.ops.end(),
                   [](const OpCount& a, const OpCount& b) { return a.seconds > b.seconds; });
  count.total.op = "step";
  count.total.seconds += rates.seconds_per_launch;
  return count;
}

absl::StatusOr<StepCount> CountStep(const TimerOptions& options) {
  TY_ASSIGN_OR_RETURN(const Graph model, BuildBenchNet(options.net));
  TY_ASSIGN_OR_RETURN(const auto backend,
                      MakeCudaBackend({.plan_cache_folder = options.plan_cache_folder,
                                       .fusions = options.fusions}));
  TY_ASSIGN_OR_RETURN(const CompilePlan plan,
                      backend->Plan(model, BenchOptimizer(model), CompileOptionsOf(options)));
  StepCount count = CountWork(plan.work, RatesOfH200(options.precision));
  count.fallbacks = plan.fallbacks;
  return count;
}

nlohmann::json ToJson(const StepCount& count) {
  nlohmann::json ops = nlohmann::json::array();
  for (const OpCount& op : count.ops) ops.push_back(ToJson(op));
  return {{"ops", ops}, {"total", ToJson(count.total)}};
}

std::string RenderCount(const StepCount& count) {
  std::string text = "| op | calls | kernels | GB | TFLOP | us |\n|---|---|---|---|---|---|\n";
  std::vector<OpCount> lines = count.ops;
  lines.push_back(count.total);
  for (const OpCount& line : lines) {
    absl::StrAppendFormat(&text, "| %s | %d | %d | %.3f | %.3f | %.0f |\n", line.op, line.calls,
                          line.kernels, line.bytes * 1e-9, line.flops * 1e-12, line.seconds * 1e6);
  }
  for (const Fallback& fallback : count.fallbacks) {
    absl::StrAppend(&text, "\n", FallbackText(fallback));
  }
  return text;
}

std::string CountLine(const TimerOptions& options, const StepCount& count) {
  return absl::StrFormat("| %s, %d rows | %d | %.3f | %.3f | %.3f |", options.net, options.rows,
                         count.total.kernels, count.total.bytes * 1e-9, count.total.flops * 1e-12,
                         count.total.seconds * 1e3);
}

}  // namespace trainyard::engine::bench
