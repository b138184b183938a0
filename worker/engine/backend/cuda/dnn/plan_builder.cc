// Divides engines among threads. A plan is run by the handle with which it was built.
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
  // The others take no time.
  const auto compiled =
      static_cast<size_t>(std::count_if(engines.begin(), engines.end(), IsCompiled));
  const size_t threads = Open(std::clamp<size_t>(compiled, 1, threads_max_));
  std::atomic<size_t> next = 0;
  const auto build = [&](const Target& target) {
    for (size_t i = next++; i < engines.size(); i = next++) {
      plans[i] = BuildPlan(target, *engines[i]);
    }
  };
  std::vector<std::thread> helpers;
  for (size_t thread = 1; thread < threads; ++thread) {
    helpers.emplace_back([&build, &target = targets_[thread]->get()] {
      if (target.has_device()) (void)cudaSetDevice(target.device_index);
      build(target);
    });
  }
  build(target());
  for (std::thread& helper : helpers) helper.join();
  return plans;
}

void PlanBuilder::ReleaseStreams() {
  for (const std::unique_ptr<OpenTarget>& target : targets_) {
    if (target->get().has_device()) (void)cudnnSetStream(target->get().handle, nullptr);
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
