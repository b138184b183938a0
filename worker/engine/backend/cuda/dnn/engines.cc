// Asks cuDNN's heuristics, and builds, saves and loads plans.
#include "worker/engine/backend/cuda/dnn/engines.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace trainyard::engine::cuda::dnn {
namespace {

// These are more than the settings that an engine has, and the engines that cuDNN ever proposes.
constexpr int64_t kKnobsMax = CUDNN_KNOB_TYPE_COUNTS;
constexpr int64_t kConfigsMax = 256;

absl::Status Describe(EngineConfig& made) {
  TY_ASSIGN_OR_RETURN(const std::vector<Descriptor> engines,
                      made.config.GetDescriptors(CUDNN_ATTR_ENGINECFG_ENGINE,
                                                 CUDNN_BACKEND_ENGINE_DESCRIPTOR, "engine", 1));
  if (engines.empty()) {
    return absl::InternalError("cuDNN proposes a configuration without engine");
  }
  const Descriptor& engine = engines.front();
  TY_ASSIGN_OR_RETURN(const int64_t index, engine.Get<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX));
  TY_ASSIGN_OR_RETURN(made.numerical_notes,
                      engine.GetAll<cudnnBackendNumericalNote_t>(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE));
  TY_ASSIGN_OR_RETURN(made.behavior_notes,
                      engine.GetAll<cudnnBackendBehaviorNote_t>(CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE));
  TY_ASSIGN_OR_RETURN(
      const std::vector<Descriptor> choices,
      made.config.GetDescriptors(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                                 CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, "setting", kKnobsMax));
  std::string settings;
  for (const Descriptor& choice : choices) {
    TY_ASSIGN_OR_RETURN(const cudnnBackendKnobType_t type,
                        choice.Get<cudnnBackendKnobType_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE));
    TY_ASSIGN_OR_RETURN(const int64_t value,
                        choice.Get<int64_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE));
    absl::StrAppend(&settings, settings.empty() ? "" : " ", static_cast<int>(type), "=", value);
  }
  TY_ASSIGN_OR_RETURN(made.workspace_bytes,
                      made.config.Get<int64_t>(CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE));
  made.name = absl::StrCat("engine ", index, " {", settings, "}");
  return absl::OkStatus();
}

absl::StatusOr<BuiltPlan> WithWorkspace(const Target& target, Descriptor plan) {
  BuiltPlan built = {.plan = {}, .workspace_bytes = 0, .target = &target};
  TY_ASSIGN_OR_RETURN(built.workspace_bytes,
                      plan.Get<int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE));
  built.plan = std::move(plan);
  return built;
}

Attribute DeviceOf(const Target& target) {
  if (target.has_device()) {
    return {CUDNN_ATTR_EXECUTION_PLAN_HANDLE, target.handle};
  }
  return {CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, target.device};
}

}  // namespace

bool EngineConfig::has(cudnnBackendNumericalNote_t note) const {
  return std::find(numerical_notes.begin(), numerical_notes.end(), note) != numerical_notes.end();
}

bool EngineConfig::has(cudnnBackendBehaviorNote_t note) const {
  return std::find(behavior_notes.begin(), behavior_notes.end(), note) != behavior_notes.end();
}

absl::StatusOr<std::vector<EngineConfig>> AskHeuristics(const Target& target, const Graph& graph,
                                                        cudnnBackendHeurMode_t mode) {
  std::vector<Attribute> attributes = {{CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph.descriptor},
                                       {CUDNN_ATTR_ENGINEHEUR_MODE, mode}};
  if (!target.has_device()) {
    attributes.emplace_back(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, target.device);
  }
  TY_ASSIGN_OR_RETURN(
      const Descriptor heuristics,
      Descriptor::Make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, "heuristics", attributes));
  TY_ASSIGN_OR_RETURN(
      std::vector<Descriptor> configs,
      heuristics.GetDescriptors(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
                                "engine configuration", kConfigsMax));
  std::vector<EngineConfig> made;
  for (Descriptor& config : configs) {
    EngineConfig one;
    one.config = std::move(config);
    TY_RETURN_IF_ERROR(Describe(one));
    made.push_back(std::move(one));
  }
  return made;
}

absl::StatusOr<BuiltPlan> BuildPlan(const Target& target, const EngineConfig& engine) {
  TY_ASSIGN_OR_RETURN(
      Descriptor plan,
      Descriptor::Make(
          CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, absl::StrCat("plan of ", engine.name),
          {DeviceOf(target), {CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, engine.config}}));
  return WithWorkspace(target, std::move(plan));
}

absl::StatusOr<BuiltPlan> DeserializePlan(const Target& target, const std::string& json) {
  TY_ASSIGN_OR_RETURN(
      Descriptor plan,
      Descriptor::Make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, "plan from the cache",
                       {DeviceOf(target), {CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, json}}));
  return WithWorkspace(target, std::move(plan));
}

absl::StatusOr<std::string> SerializePlan(const BuiltPlan& plan) {
  return plan.plan.GetText(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION);
}

}  // namespace trainyard::engine::cuda::dnn
