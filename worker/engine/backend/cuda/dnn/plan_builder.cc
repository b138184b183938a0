// Divides engines among threads. A plan is run by the handle with which it was made, so that the
// one that is chosen moves, as a text, to the handle that stays.
#include "worker/engine/backend/cuda/dnn/plan_builder.h"

#include <cuda_runtime_api.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <utility>

#include "common/base/log.h"

namespace trainyard::engine::cuda::dnn {
namespace {

bool IsCompiled(const EngineConfig* engine) {
  return engine->has(CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION);
}

}  // namespace

int PlanBuilder::UsualThreads() {
  constexpr int kThreadsMax = 8;
  cpu_set_t processors;
  CPU_ZERO(&processors);
  if (sched_getaffinity(0, sizeof processors, &processors) != 0) return 1;
  return std::clamp(CPU_COUNT(&processors), 1, kThreadsMax);
}

PlanBuilder::PlanBuilder(std::unique_ptr<OpenTarget> target, int threads)
    : threads_max_(static_cast<size_t>(std::max(1, threads))) {
  targets_.push_back(std::move(target));
}

std::vector<absl::StatusOr<BuiltPlan>> PlanBuilder::Build(
    absl::Span<const EngineConfig* const> engines) {
  std::vector<absl::StatusOr<BuiltPlan>> plans(engines.size());
  std::vector<size_t> compiled;
  for (size_t i = 0; i < engines.size(); ++i) {
    if (IsCompiled(engines[i])) compiled.push_back(i);
  }
  const size_t threads = Open(std::clamp<size_t>(compiled.size(), 1, threads_max_));
  std::atomic<size_t> next = 0;
  const auto build = [&](const Target& target) {
    for (size_t at = next++; at < compiled.size(); at = next++) {
      plans[compiled[at]] = BuildPlan(target, *engines[compiled[at]]);
    }
  };
  std::vector<std::thread> helpers;
  for (size_t thread = 1; thread < threads; ++thread) {
    helpers.emplace_back([&build, &target = targets_[thread]->get()] {
      if (target.has_device()) (void)cudaSetDevice(target.device_index);
      build(target);
    });
  }
  // The others take no time, and cuDNN promises no text of their plans.
  for (size_t i = 0; i < engines.size(); ++i) {
    if (!IsCompiled(engines[i])) plans[i] = BuildPlan(target(), *engines[i]);
  }
  build(target());
  for (std::thread& helper : helpers) helper.join();
  return plans;
}

BuiltPlan PlanBuilder::Adopt(BuiltPlan plan) {
  const auto helper =
      std::find_if(targets_.begin() + 1, targets_.end(),
                   [&plan](const auto& target) { return &target->get() == plan.target; });
  if (helper == targets_.end()) return plan;
  const absl::StatusOr<std::string> text = SerializePlan(plan);
  absl::StatusOr<BuiltPlan> moved = text.ok() ? DeserializePlan(target(), *text) : text.status();
  if (moved.ok()) return *std::move(moved);
  LogInfo("a plan keeps a handle of its own, which takes memory of the device",
          {{"reason", std::string(moved.status().message())}});
  kept_.push_back(std::move(*helper));
  targets_.erase(helper);
  return plan;
}

void PlanBuilder::CloseHelpers() {
  targets_.resize(1);
}

void PlanBuilder::ReleaseStreams() {
  for (const auto* targets : {&targets_, &kept_}) {
    for (const std::unique_ptr<OpenTarget>& target : *targets) {
      if (target->get().has_device()) (void)cudnnSetStream(target->get().handle, nullptr);
    }
  }
}

size_t PlanBuilder::Open(size_t threads) {
  while (targets_.size() < threads) {
    absl::StatusOr<std::unique_ptr<OpenTarget>> another = targets_.front()->OpenAgain();
    if (!another.ok()) {
      LogInfo("plans are built by fewer threads",
              {{"reason", std::string(another.status().message())}});
      break;
    }
    targets_.push_back(*std::move(another));
  }
  return std::min(threads, targets_.size());
}

}  // namespace trainyard::engine::cuda::dnn
