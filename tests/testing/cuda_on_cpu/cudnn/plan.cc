// Execution plans, the bindings with which they are executed, and descriptions of devices.
#include <atomic>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/env.h"
#include "tests/testing/cuda_on_cpu/cuda_on_cpu.h"
#include "tests/testing/cuda_on_cpu/cudnn/cudnn_on_cpu.h"
#include "tests/testing/cuda_on_cpu/cudnn/plan_text.h"
#include "tests/testing/cuda_on_cpu/cudnn/program.h"

namespace trainyard::cuda_on_cpu {
namespace cudnn {
namespace {

// The description that a real device, an H200, gives of itself.
constexpr char kDeviceText[] =
    R"({"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],)"
    R"("regsPerBlock":65536,"multiProcessorCount":132,"warpSize":32,"smClockRateKHz":1980000,)"
    R"("memClockRateKHz":3201000,"l2CacheSize":62914560,"maxSharedMemoryPerBlock":49152,)"
    R"("maxSharedMemoryPerBlockOptin":232448,"reservedSharedMemoryPerBlock":1024,)"
    R"("maxRegistersPerSM":65536,"maxCtasPerSM":32,"maxThreadsPerBlock":1024,)"
    R"("maxThreadsPerSM":2048,"isTccDriver":0,"supportCoopLaunch":1,"deviceVer":900,)"
    R"("driverVer":13000,"cudaDeviceId":0,"totalGlobalMem":150754820096,"pciDeviceId":0,)"
    R"("deviceName":"cuDNN on the CPU","major":9,"minor":0})";

// Compiles, as cuDNN's engines do that are compiled when they are chosen. See cudnn_on_cpu.h.
void SpendPlanTime() {
  static const absl::Duration time = [] {
    double seconds = 0;
    const char* const text = std::getenv("CUDNN_ON_CPU_PLAN_SECONDS");
    if (text != nullptr) (void)absl::SimpleAtod(text, &seconds);
    return absl::Seconds(seconds);
  }();
  if (time > absl::ZeroDuration()) Clock::Real()->SleepFor(time);
}

std::atomic<bool> refuses_texts{false};
std::mutex watch_mutex;

std::function<void()>& Watch() {
  static auto& watch = *new std::function<void()>();
  return watch;
}

void TellWatch() {
  std::function<void()> watch;
  {
    const std::lock_guard lock(watch_mutex);
    watch = Watch();
  }
  if (watch) watch();
}

// The configuration that the caller set, or that the text describes.
cudnnStatus_t FindConfig(const Descriptor& plan, std::shared_ptr<const Descriptor>* config) {
  if (plan.Has(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)) {
    *config = plan.SharedChild(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    return CUDNN_STATUS_SUCCESS;
  }
  std::shared_ptr<const Descriptor> graph;
  int64_t index = 0;
  TY_CUDNN_TRY(
      ReadPlanText(plan.Text(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION), &graph, &index));
  auto engine = std::make_shared<Descriptor>();
  engine->type = CUDNN_BACKEND_ENGINE_DESCRIPTOR;
  engine->SetChildren(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, {std::move(graph)});
  engine->SetInts(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, {index});
  TY_CUDNN_TRY(Finalize(engine.get()));
  auto made = std::make_shared<Descriptor>();
  made->type = CUDNN_BACKEND_ENGINECFG_DESCRIPTOR;
  made->SetChildren(CUDNN_ATTR_ENGINECFG_ENGINE, {std::move(engine)});
  TY_CUDNN_TRY(Finalize(made.get()));
  *config = std::move(made);
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

cudnnStatus_t FinalizePlan(Descriptor* plan) {
  if (!plan->Has(CUDNN_ATTR_EXECUTION_PLAN_HANDLE) &&
      !plan->Has(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP)) {
    return Fail(CUDNN_STATUS_BAD_PARAM, "a plan needs a handle, or a device's properties");
  }
  if (plan->Has(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG) ==
      plan->Has(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION)) {
    return Fail(CUDNN_STATUS_BAD_PARAM, "a plan needs an engine's configuration, or a text");
  }
  if (plan->Has(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)) {
    TellPlan("cuDNN");
    TellWatch();
    SpendPlanTime();
  }
  std::shared_ptr<const Descriptor> config;
  TY_CUDNN_TRY(FindConfig(*plan, &config));
  const Engine& engine = *config->engine;
  if (!engine.can_be_built) {
    return Fail(CUDNN_STATUS_NOT_SUPPORTED,
                absl::StrCat("engine ", engine.index, " cannot run this graph"));
  }
  if (IsRefused(*config->program)) {
    return Fail(CUDNN_STATUS_NOT_SUPPORTED, "no engine takes this graph");
  }
  plan->engine = config->engine;
  plan->program = config->program;
  const Descriptor& graph =
      *config->Child(CUDNN_ATTR_ENGINECFG_ENGINE)->Child(CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
  if (!refuses_texts) {
    plan->SetText(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, PlanText(graph, engine.index));
  }
  plan->SetInts(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64,
                {WorkspaceBytes(*plan->program, engine)});
  plan->SetChildren(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, {std::move(config)});
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t FinalizeVariantPack(Descriptor* pack) {
  const auto ids = pack->Ints(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto pointers = pack->Pointers(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  if (ids.size() != pointers.size()) {
    return Fail(CUDNN_STATUS_BAD_PARAM, absl::StrCat("variant pack: ", ids.size(), " ids, but ",
                                                     pointers.size(), " pointers"));
  }
  if (std::set<int64_t>(ids.begin(), ids.end()).size() != ids.size()) {
    return Fail(CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES, "variant pack: an id stands twice");
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t FinalizeDevice(Descriptor* device) {
  if (device->Has(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION)) {
    return IsDeviceText(device->Text(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION))
               ? CUDNN_STATUS_SUCCESS
               : Fail(CUDNN_STATUS_BAD_PARAM, "the text describes no device");
  }
  // Without any attribute, the device is the current one. The emulation has only one kind.
  device->SetText(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, kDeviceText);
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace cudnn

void WatchPlans(std::function<void()> watch) {
  const std::lock_guard lock(cudnn::watch_mutex);
  cudnn::Watch() = std::move(watch);
}

void RefusePlanTexts(bool refuses) {
  cudnn::refuses_texts = refuses;
}

}  // namespace trainyard::cuda_on_cpu
