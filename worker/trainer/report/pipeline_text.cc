// Formats the plan of a pipeline: a table of its stages for people, and JSON for programs.
#include "worker/trainer/report/pipeline_text.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/columns.h"
#include "common/base/strings.h"
#include "nlohmann/json.hpp"
#include "worker/trainer/report/fallback_text.h"
#include "worker/trainer/report/quantity_text.h"

namespace trainyard::trainer {
namespace {

std::vector<engine::Fallback> FallbacksOf(const PlannedPipeline& plan) {
  std::vector<engine::Fallback> all;
  for (const PlannedStage& stage : plan.stages) {
    all.insert(all.end(), stage.fallbacks.begin(), stage.fallbacks.end());
  }
  return all;
}

}  // namespace

std::string PipelineText(const PlannedPipeline& plan) {
  std::string text = absl::StrCat(
      plan.stages.size(), " stages, cut before ", absl::StrJoin(plan.cuts, ", "),
      plan.is_chosen ? " (chosen)" : "", "; ", plan.pipelines,
      plan.pipelines == 1 ? " pipeline" : " pipelines", ", backend ", plan.backend, " in ",
      engine::PrecisionName(plan.precision), ", ", plan.threads,
      plan.threads == 1 ? " thread" : " threads", "\n", plan.schedule, ": ", plan.microbatches,
      plan.microbatches == 1 ? " microbatch" : " microbatches", " of ", plan.microbatch_rows,
      plan.microbatch_rows == 1 ? " row" : " rows", "\n");
  const bool is_timed = plan.prediction.step_seconds > 0;
  if (is_timed) {
    absl::StrAppend(&text, "a step of ", FormatCount(plan.global_batch), " samples takes about ",
                    FormatSeconds(plan.prediction.step_seconds), ", of which devices wait ",
                    absl::StrFormat("%.0f%%", 100 * plan.prediction.bubble), "\n");
  }
  std::vector<std::vector<std::string>> rows = {
      {"stage", "layers", "parameters", "slots", "memory", "forward", "backward"}};
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    const PlannedStage& stage = plan.stages[s];
    rows.push_back({absl::StrCat(s), absl::StrCat(stage.first_layer, " to ", stage.last_layer),
                    FormatCount(stage.parameters), absl::StrCat(stage.slots),
                    FormatBytes(stage.memory.total()),
                    is_timed ? FormatSeconds(stage.times.forward) : "-",
                    is_timed ? FormatSeconds(stage.times.backward) : "-"});
  }
  absl::StrAppend(&text, "\n", AlignColumns(rows, "llrrrrr"), FallbackList(FallbacksOf(plan)));
  return text;
}

std::string PipelineJson(const PlannedPipeline& plan) {
  nlohmann::ordered_json json;
  json["name"] = plan.name;
  json["backend"] = plan.backend;
  json["precision"] = engine::PrecisionName(plan.precision);
  json["threads"] = plan.threads;
  json["pipelines"] = plan.pipelines;
  json["schedule"] = plan.schedule;
  json["global_batch"] = plan.global_batch;
  json["microbatches"] = plan.microbatches;
  json["microbatch_rows"] = plan.microbatch_rows;
  json["cuts"] = plan.cuts;
  json["memory_limit_bytes"] = plan.memory_limit;
  json["step"] = {{"seconds", plan.prediction.step_seconds}, {"bubble", plan.prediction.bubble}};
  json["stages"] = nlohmann::ordered_json::array();
  for (const PlannedStage& stage : plan.stages) {
    json["stages"].push_back({{"first_layer", stage.first_layer},
                              {"last_layer", stage.last_layer},
                              {"parameters", stage.parameters},
                              {"slots", stage.slots},
                              {"bytes", stage.memory.total()},
                              {"forward_seconds", stage.times.forward},
                              {"backward_seconds", stage.times.backward},
                              {"fallbacks", FallbackJson(stage.fallbacks)}});
  }
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace trainyard::trainer
