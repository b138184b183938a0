#include "worker/trainer/plan_report.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"
#include "nlohmann/json.hpp"
#include "worker/run_dir/training_spec.h"
#include "worker/trainer/model_setup.h"

namespace trainyard::trainer {

absl::StatusOr<std::string> ReportPlan(absl::string_view spec_json, absl::string_view backend,
                                       int threads, PlanFormat format) {
  TY_ASSIGN_OR_RETURN(const run_dir::TrainingSpec spec, run_dir::ParseTrainingSpec(spec_json));
  TY_ASSIGN_OR_RETURN(
      const CompiledModel model,
      CompileModel(spec, {.backend = backend, .world_size = spec.devices, .threads = threads}));
  int64_t parameters = 0;
  for (const engine::StateTensor& tensor : model.executable->state()) {
    if (tensor.kind == engine::StateTensor::Kind::kParameter) {
      parameters += engine::ElementCount(tensor.shape);
    }
  }
  const engine::MemoryPlan& plan = model.executable->memory_plan();
  const std::vector<std::pair<const char*, int64_t>> categories = {
      {"parameters", plan.parameters}, {"optimizer", plan.optimizer},
      {"gradients", plan.gradients},   {"activations", plan.activations},
      {"workspace", plan.workspace},   {"total", plan.total()}};
  if (format == PlanFormat::kJson) {
    nlohmann::ordered_json json;
    json["backend"] = std::string(backend);
    json["parameters"] = parameters;
    json["rows"] = model.max_rows;
    for (const auto& [name, bytes] : categories) json["bytes"][name] = bytes;
    return json.dump() + "\n";
  }
  std::string text = absl::StrFormat("%s parameters, %s rows a device, backend %s\n",
                                     FormatCount(parameters), FormatCount(model.max_rows), backend);
  for (const auto& [name, bytes] : categories) {
    absl::StrAppendFormat(&text, "%-12s %12s\n", name, FormatBytes(bytes));
  }
  return text;
}

}  // namespace trainyard::trainer
