// Finds the plan for a problem: in memory, in the cache, or by asking and measuring cuDNN.
#include "worker/engine/backend/cuda/dnn/planner.h"

#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "worker/engine/backend/cuda/dnn/attention_graph.h"
#include "worker/engine/backend/cuda/dnn/candidates.h"
#include "worker/engine/backend/cuda/dnn/conv_graph.h"
#include "worker/engine/backend/cuda/dnn/cudnn_plan.h"
#include "worker/engine/backend/cuda/dnn/plan_cache.h"
#include "worker/engine/backend/cuda/dnn/target.h"

namespace trainyard::engine::cuda::dnn {
namespace {

class CudnnPlanner : public Planner {
 public:
  CudnnPlanner(std::unique_ptr<OpenTarget> target, const PlannerOptions& options)
      : target_(std::move(target)), options_(options), cache_(options.cache_path) {}

  absl::StatusOr<const Plan*> Find(const ConvProblem& problem) override {
    const Precision precision = {problem.type == Type::kF32, problem.tf32};
    return FindOrMake(problem.Key(), precision,
                      [&](cudnnHandle_t handle) { return BuildConvGraph(problem, handle); });
  }

  absl::StatusOr<const Plan*> Find(const AttentionProblem& problem) override {
    return FindOrMake(problem.Key(), Precision(), [&](cudnnHandle_t handle) {
      return BuildAttentionGraph(problem, options_.deterministic, handle);
    });
  }

  void ReleaseStream() override {
    if (target_->get().has_device()) (void)cudnnSetStream(target_->get().handle, nullptr);
  }

  absl::Status SaveCache() override { return cache_.Save(); }

  absl::StatusOr<std::string> DeviceDescription() override {
    const Target& target = target_->get();
    return target.has_device() ? DescribeDevice(target.handle)
                               : absl::StatusOr<std::string>(target.description);
  }

 private:
  using Found = absl::StatusOr<std::unique_ptr<CudnnPlan>>;

  // Remembers what was found, and also if nothing was found.
  template <typename Build>
  absl::StatusOr<const Plan*> FindOrMake(const std::string& key, Precision precision,
                                         const Build& build) {
    auto known = plans_.find(key);
    if (known == plans_.end()) {
      Found made = NotFoundWhereRefused(build(target_->get().handle), key, precision);
      if (!made.ok()) {
        made = Annotate(made.status(), key);
      }
      known = plans_.emplace(key, std::move(made)).first;
    }
    if (!known->second.ok()) {
      return known->second.status();
    }
    return known->second->get();
  }

  Found NotFoundWhereRefused(absl::StatusOr<Graph> graph, const std::string& key,
                             Precision precision) {
    if (absl::IsUnimplemented(graph.status()) || absl::IsInvalidArgument(graph.status())) {
      return absl::NotFoundError(graph.status().message());
    }
    if (!graph.ok()) {
      return graph.status();
    }
    const std::string cache_key = CacheKey(key);
    if (std::optional<CachedPlan> cached = cache_.Find(cache_key)) {
      absl::StatusOr<BuiltPlan> plan = DeserializePlan(target_->get(), cached->json);
      if (plan.ok() &&
          graph->WorkspaceBytes(plan->workspace_bytes) <= options_.workspace_bytes_max) {
        cached->facts.workspace_bytes = graph->WorkspaceBytes(plan->workspace_bytes);
        return std::make_unique<CudnnPlan>(&target_->get(), *std::move(graph), *std::move(plan),
                                           std::move(cached->facts));
      }
      LogInfo("a plan of the cache is made anew",
              {{"key", cache_key}, {"reason", std::string(plan.status().message())}});
    }
    return Choose(*std::move(graph), cache_key, precision);
  }

  Found Choose(Graph graph, const std::string& cache_key, Precision precision) {
    const Target& target = target_->get();
    const bool measures = options_.autotunes && target.has_device();
    TY_ASSIGN_OR_RETURN(std::vector<Candidate> candidates,
                        BuildCandidates(target, graph, precision, options_,
                                        measures ? options_.candidates_max : 1));
    bool is_measured = measures;
    if (measures) {
      const absl::Status sorted = SortBySpeed(target, graph, candidates);
      // If there is no room to measure in, cuDNN's first proposal is good enough. The next run may
      // find room.
      is_measured = !absl::IsResourceExhausted(sorted);
      if (is_measured) {
        TY_RETURN_IF_ERROR(sorted);
      } else {
        LogWarning("no room to measure plans in",
                   {{"key", cache_key}, {"reason", std::string(sorted.message())}});
      }
    }
    Candidate& best = candidates.front();
    PlanFacts facts;
    facts.engine = best.name;
    facts.workspace_bytes = graph.WorkspaceBytes(best.plan.workspace_bytes);
    facts.candidates = static_cast<int>(candidates.size());
    facts.microseconds = best.microseconds;
    // A plan that cannot be serialized is still used.
    absl::StatusOr<std::string> json = SerializePlan(best.plan);
    if (json.ok() && is_measured == measures) {
      cache_.Put(cache_key, {*std::move(json), facts});
    }
    return std::make_unique<CudnnPlan>(&target, std::move(graph), std::move(best.plan),
                                       std::move(facts));
  }

  // Plans differ by device, by version of cuDNN and by option.
  std::string CacheKey(const std::string& key) const {
    const bool measures = options_.autotunes && target_->get().has_device();
    return absl::StrCat(key, " | ", target_->get().name, " | cudnn ", cudnnGetVersion(),
                        " | workspace ", options_.workspace_bytes_max,
                        measures ? absl::StrCat(" measured ", options_.candidates_max) : " first",
                        options_.deterministic ? " deterministic" : "");
  }

  std::unique_ptr<OpenTarget> target_;
  PlannerOptions options_;
  PlanCache cache_;
  std::map<std::string, Found> plans_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Planner>> Planner::ForDevice(const PlannerOptions& options) {
  TY_ASSIGN_OR_RETURN(std::unique_ptr<OpenTarget> target, OpenTarget::ForDevice());
  return std::make_unique<CudnnPlanner>(std::move(target), options);
}

absl::StatusOr<std::unique_ptr<Planner>> Planner::ForDescription(const std::string& json,
                                                                 const PlannerOptions& options) {
  TY_ASSIGN_OR_RETURN(std::unique_ptr<OpenTarget> target, OpenTarget::ForDescription(json));
  return std::make_unique<CudnnPlanner>(std::move(target), options);
}

}  // namespace trainyard::engine::cuda::dnn
