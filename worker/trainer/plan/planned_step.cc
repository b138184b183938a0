// Plans a step by asking the backend, which compiles nothing, and predicts its time op by op.
#include "worker/trainer/plan/planned_step.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/memory_limit.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"
#include "worker/engine/graph/cost.h"
#include "worker/engine/graph/passes.h"
#include "worker/engine/make_backend.h"
#include "worker/trainer/plan/memory.h"
#include "worker/trainer/plan/roofline.h"

namespace trainyard::trainer {
namespace {

// The optimizer reads and writes all of its state, and the parameters; it reads and clears the
// gradients.
PlannedOp UpdatePlan(const engine::MemoryPlan& memory, const MachineSpeed& machine) {
  PlannedOp update{.op = "update", .nodes = 0, .calls = 1, .cost = {}, .seconds = 0};
  update.cost.bytes =
      2.0 * static_cast<double>(memory.parameters + memory.optimizer + memory.gradients);
  update.seconds = CostSeconds(update.cost, machine);
  return update;
}

// Sums by op, for all rows of the device: `repeats` times what is computed at once.
std::vector<PlannedOp> PlanOps(const engine::Graph& graph, int64_t rows, double repeats,
                               const std::map<std::string, int64_t>& calls,
                               const MachineSpeed& machine) {
  std::map<std::string, PlannedOp> by_op;
  for (const engine::Node& node : graph.nodes) {
    PlannedOp& op = by_op[std::string(engine::OpName(node.op))];
    const engine::Cost cost = engine::NodeCost(graph, node, rows);
    op.nodes += 1;
    op.cost.flops += repeats * cost.flops;
    op.cost.bytes += repeats * cost.bytes;
    op.seconds += repeats * NodeSeconds(graph, node, rows, machine);
  }
  for (const auto& [name, count] : calls) by_op[name].calls = count;
  std::vector<PlannedOp> ops;
  for (auto& [name, op] : by_op) {
    op.op = name;
    ops.push_back(std::move(op));
  }
  return ops;
}

absl::StatusOr<PassEffect> EffectOf(const PreparedModel& model, engine::Backend& backend,
                                    const engine::PassOptions& passes) {
  engine::CompileOptions options = model.options;
  options.passes = passes;
  TY_ASSIGN_OR_RETURN(const engine::CompilePlan plan,
                      backend.Plan(model.graph, model.optimizer, options));
  const engine::StepGraph step = engine::BuildTrainingStep(model.graph, {passes, false});
  return PassEffect{.kernels = plan.total_calls(),
                    .bytes_moved = engine::GraphCost(step.graph, options.max_rows).bytes,
                    .activation_bytes = plan.memory.activations};
}

absl::StatusOr<std::vector<PlannedPass>> PlanPasses(const PreparedModel& model,
                                                    engine::Backend& backend) {
  std::vector<PlannedPass> plans;
  const engine::PassOptions& now = model.options.passes;
  TY_ASSIGN_OR_RETURN(const PassEffect as_it_is, EffectOf(model, backend, now));
  for (const engine::Pass& pass : engine::kPasses) {
    engine::PassOptions other = now;
    other.*pass.option = !(now.*pass.option);
    TY_ASSIGN_OR_RETURN(const PassEffect otherwise, EffectOf(model, backend, other));
    const bool is_on = now.*pass.option;
    plans.push_back({.name = std::string(pass.name),
                     .sentence = std::string(pass.sentence),
                     .is_on = is_on,
                     .off = is_on ? otherwise : as_it_is,
                     .on = is_on ? as_it_is : otherwise});
  }
  return plans;
}

std::vector<PlannedLayer> PlanLayers(const engine::Graph& graph) {
  std::vector<PlannedLayer> layers;
  for (const engine::Node& node : graph.nodes) {
    PlannedLayer layer{.name = node.name,
                       .op = std::string(engine::OpName(node.op)),
                       .output = graph.value(node.outputs[0]).shape,
                       .parameters = 0,
                       .flops = engine::NodeCost(graph, node, 1).flops};
    for (const engine::ValueId input : node.inputs) {
      const engine::Value& value = graph.value(input);
      if (value.role == engine::Role::kParameter) {
        layer.parameters += engine::ElementCount(value.shape);
      }
    }
    layers.push_back(std::move(layer));
  }
  return layers;
}

int64_t CountParameters(const engine::Graph& graph) {
  int64_t parameters = 0;
  for (const engine::Value& value : graph.values) {
    if (value.role == engine::Role::kParameter) parameters += engine::ElementCount(value.shape);
  }
  return parameters;
}

}  // namespace

absl::Status SwitchOff(const std::vector<std::string>& names, engine::PassOptions& passes) {
  for (const std::string& name : names) {
    const auto* const pass =
        std::find_if(std::begin(engine::kPasses), std::end(engine::kPasses),
                     [&name](const engine::Pass& candidate) { return candidate.name == name; });
    if (pass == std::end(engine::kPasses)) {
      std::vector<std::string> known;
      for (const engine::Pass& each : engine::kPasses) known.emplace_back(each.name);
      const std::string near = NearestWord(name, known);
      return absl::InvalidArgumentError(
          absl::StrCat("--without '", name, "' names no pass; ",
                       near.empty() ? absl::StrCat("expected ", absl::StrJoin(known, ", "))
                                    : absl::StrCat("did you mean '", near, "'?")));
    }
    passes.*pass->option = false;
  }
  return absl::OkStatus();
}

CompileTarget TargetOf(const v1::JobSpec& spec, const PlanOptions& options) {
  return {.backend = options.backend,
          .rank = 0,
          .world_size = spec.devices().count(),
          .threads = options.threads};
}

PlannedOp PlannedStep::Total() const {
  PlannedOp total{.op = "total", .nodes = 0, .calls = 0, .cost = {}, .seconds = 0};
  for (const PlannedOp& op : ops) {
    total.nodes += op.nodes;
    total.calls += op.calls;
    total.cost.flops += op.cost.flops;
    total.cost.bytes += op.cost.bytes;
    total.seconds += op.seconds;
  }
  return total;
}

double PlannedStep::samples_per_second() const {
  const double seconds = Total().seconds;
  return seconds > 0 ? static_cast<double>(global_batch) / seconds : 0;
}

absl::StatusOr<LeastMemory> PlanLeastMemory(const v1::JobSpec& spec, const PlanOptions& options) {
  CompileTarget target = TargetOf(spec, options);
  target.replicas_at_once = 1;
  TY_ASSIGN_OR_RETURN(const PreparedModel model, PrepareModel(spec, target));
  TY_ASSIGN_OR_RETURN(const auto backend, engine::MakeBackend(options.backend));
  TY_ASSIGN_OR_RETURN(const engine::CompilePlan plan, PlanPrepared(model, *backend, target.rank));
  return LeastMemory{.host_bytes = plan.memory.total(),
                     .gpu_bytes = plan.memory.parameters + plan.memory.optimizer};
}

absl::StatusOr<PlannedStep> PlanStep(const v1::JobSpec& spec, const PlanOptions& options) {
  CompileTarget target = TargetOf(spec, options);
  const int64_t limit =
      options.memory_bytes > 0 ? options.memory_bytes : AllowedMemory() / spec.devices().count();
  TY_ASSIGN_OR_RETURN(target.replicas_at_once, ReplicasAtOnce(spec, target, limit));
  TY_ASSIGN_OR_RETURN(PreparedModel model, PrepareModel(spec, target));
  TY_RETURN_IF_ERROR(SwitchOff(options.without, model.options.passes));
  TY_ASSIGN_OR_RETURN(const auto backend, engine::MakeBackend(options.backend));
  TY_ASSIGN_OR_RETURN(const engine::CompilePlan plan, PlanPrepared(model, *backend, target.rank));
  PlannedStep report{.name = spec.name(),
                     .backend = options.backend,
                     .precision = model.options.precision,
                     .is_auto_precision = spec.train().precision() == v1::PRECISION_AUTO,
                     .threads = options.threads,
                     .devices = spec.devices().count(),
                     .global_batch = spec.train().global_batch(),
                     .hosted_rows = model.hosted_rows,
                     .rows = model.options.max_rows,
                     .parameters = CountParameters(model.graph),
                     .memory = plan.memory,
                     .memory_limit = limit,
                     .misfit = {},
                     .fallbacks = plan.fallbacks,
                     .machine = {},
                     .ops = {},
                     .passes = {},
                     .layers = PlanLayers(model.graph)};
  report.misfit = std::string(CheckMemory(spec, target, plan.memory, limit).message());
  if (options.format == PlanFormat::kText || options.format == PlanFormat::kLayers) return report;
  if (options.measures_machine) {
    TY_ASSIGN_OR_RETURN(report.machine, MeasureMachine(options.backend, options.threads));
  }
  const engine::StepGraph step =
      engine::BuildTrainingStep(model.graph, {model.options.passes, false});
  const double repeats =
      static_cast<double>(model.hosted_rows) / static_cast<double>(model.options.max_rows);
  report.ops = PlanOps(step.graph, model.options.max_rows, repeats, plan.calls, report.machine);
  report.ops.push_back(UpdatePlan(plan.memory, report.machine));
  std::stable_sort(report.ops.begin(), report.ops.end(),
                   [](const PlannedOp& a, const PlannedOp& b) { return a.seconds > b.seconds; });
  TY_ASSIGN_OR_RETURN(report.passes, PlanPasses(model, *backend));
  return report;
}

}  // namespace trainyard::trainer
