// Turns the flags of --plan into a plan of the step, or of the pipeline if the spec has stages.
#include "worker/trainer/report/plan_report.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/memory_limit.h"
#include "common/base/status_macros.h"
#include "worker/engine/graph/passes.h"
#include "worker/engine/graph/render_dot.h"
#include "worker/trainer/plan/planned_pipeline.h"
#include "worker/trainer/plan/spec.h"
#include "worker/trainer/report/pipeline_text.h"
#include "worker/trainer/report/plan_text.h"

namespace trainyard::trainer {
namespace {

absl::StatusOr<std::string> Dot(const v1::JobSpec& spec, const CompileTarget& target,
                                const PlanOptions& options) {
  TY_ASSIGN_OR_RETURN(PreparedModel model, PrepareModel(spec, target));
  TY_RETURN_IF_ERROR(SwitchOff(options.without, model.options.passes));
  return engine::RenderDot(engine::BuildTrainingStep(model.graph, {model.options.passes, false}),
                           model.options.max_rows);
}

// Reports the plan of a spec in which each device holds a stage.
absl::StatusOr<std::string> ReportPipeline(const v1::JobSpec& spec, const PlanOptions& options) {
  PipelinePlanOptions planning = {.backend = options.backend,
                                  .threads = options.threads,
                                  .memory_bytes = options.memory_bytes > 0
                                                      ? options.memory_bytes
                                                      : AllowedMemory() / spec.devices().count()};
  if (options.measures_machine) {
    TY_ASSIGN_OR_RETURN(planning.machine, MeasureMachine(options.backend, options.threads));
  }
  TY_ASSIGN_OR_RETURN(const PlannedPipeline plan, PlanPipeline(spec, planning));
  return options.format == PlanFormat::kJson ? PipelineJson(plan) : PipelineText(plan);
}

// It says nothing of pipelines: the stage that needs most depends on where the network is cut, and
// that on the devices.
absl::StatusOr<std::string> ReportNeed(const v1::JobSpec& spec, const PlanOptions& options) {
  LeastMemory least;
  if (spec.stages().count() <= 1) {
    TY_ASSIGN_OR_RETURN(least, PlanLeastMemory(spec, options));
  }
  return absl::StrCat("{\"host_bytes\": ", least.host_bytes, ", \"gpu_bytes\": ", least.gpu_bytes,
                      "}\n");
}

}  // namespace

absl::StatusOr<std::string> ReportPlan(absl::string_view spec_json, const PlanOptions& options) {
  TY_ASSIGN_OR_RETURN(v1::JobSpec spec, ParseSpec(spec_json));
  if (options.batch > 0) spec.mutable_train()->set_global_batch(options.batch);
  if (options.format == PlanFormat::kNeed) return ReportNeed(spec, options);
  if (spec.stages().count() > 1) {
    if (options.format != PlanFormat::kDot && options.format != PlanFormat::kLayers) {
      return ReportPipeline(spec, options);
    }
    // Both formats show the whole model, as each pipeline has it.
    spec.mutable_devices()->set_count(std::max(1, spec.devices().count() / spec.stages().count()));
    spec.clear_stages();
  }
  if (options.format == PlanFormat::kDot) return Dot(spec, TargetOf(spec, options), options);
  TY_ASSIGN_OR_RETURN(const PlannedStep report, PlanStep(spec, options));
  switch (options.format) {
    case PlanFormat::kTable:
      return PlanTable(report);
    case PlanFormat::kJson:
      return PlanJson(report);
    case PlanFormat::kLayers:
      return LayerTable(report);
    case PlanFormat::kText:
    case PlanFormat::kDot:
    case PlanFormat::kNeed:
      break;
  }
  return MemoryText(report);
}

}  // namespace trainyard::trainer
