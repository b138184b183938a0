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
      : target_(std::move(target)), options_(options), cache_(options.cache_folder) {}

  absl::StatusOr<const Plan*> Find(const ConvProblem& problem, Effort effort) override {
    const Precision precision = {problem.type == Type::kF32, problem.tf32};
    return FindOrMake({problem.Key(), problem.Family(), problem.rows, precision}, effort,
                      [&](cudnnHandle_t handle) { return BuildConvGraph(problem, handle); });
  }

  absl::StatusOr<const Plan*> Find(const AttentionProblem& problem, Effort effort) override {
    return FindOrMake({problem.Key(), problem.Family(), problem.rows, Precision()}, effort,
                      [&](cudnnHandle_t handle) {
                        return BuildAttentionGraph(problem, options_.deterministic, handle);
                      });
  }

  void ReleaseStream() override {
    if (target_->get().has_device()) (void)cudnnSetStream(target_->get().handle, nullptr);
  }

  absl::StatusOr<std::string> DeviceDescription() override {
    const Target& target = target_->get();
    return target.has_device() ? DescribeDevice(target.handle)
                               : absl::StatusOr<std::string>(target.description);
  }

 private:
  using Found = absl::StatusOr<std::unique_ptr<CudnnPlan>>;

  struct Question {
    std::string key;
    std::string family;
    int64_t rows = 0;
    Precision precision;
  };

  // The choice that smaller problems of a family take over.
  struct Leader {
    std::string engine;
    double microseconds = 0;
    int64_t rows = 0;
  };

  // Remembers what was found, and also if nothing was found.
  template <typename Build>
  absl::StatusOr<const Plan*> FindOrMake(const Question& question, Effort effort,
                                         const Build& build) {
    const auto measured = measured_.find(question.key);
    if (measured != measured_.end()) return Answer(measured->second);
    std::map<std::string, Found>& plans = effort == Effort::kMeasure ? measured_ : inherited_;
    auto known = plans.find(question.key);
    if (known == plans.end()) {
      Found made = Make(build(target_->get().handle), question, effort);
      if (!made.ok()) {
        made = Annotate(made.status(), question.key);
      }
      known = plans.emplace(question.key, std::move(made)).first;
    }
    return Answer(known->second);
  }

  static absl::StatusOr<const Plan*> Answer(const Found& found) {
    if (!found.ok()) return found.status();
    return found->get();
  }

  // Returns NOT_FOUND for a graph that cuDNN refuses.
  Found Make(absl::StatusOr<Graph> graph, const Question& question, Effort effort) {
    if (absl::IsUnimplemented(graph.status()) || absl::IsInvalidArgument(graph.status())) {
      return absl::NotFoundError(graph.status().message());
    }
    if (!graph.ok()) {
      return graph.status();
    }
    Found made = Choose(*std::move(graph), question, effort);
    if (made.ok() && effort == Effort::kMeasure) Lead(question, (*made)->facts());
    return made;
  }

  Found Choose(Graph graph, const Question& question, Effort effort) {
    // A choice of an earlier run is as good as a measurement.
    const bool measures = options_.autotunes && target_->get().has_device();
    const std::string cache_key =
        CacheKey(question.key, measures ? absl::StrCat("measured ", options_.candidates_max)
                                        : std::string("first"));
    if (auto cached = FromCache(graph, cache_key)) return cached;
    if (effort == Effort::kMeasure && measures)
      return Measure(std::move(graph), question, cache_key);
    const auto leader = leaders_.find(question.family);
    if (effort == Effort::kMeasure || leader == leaders_.end()) {
      const std::string first_key = CacheKey(question.key, "first");
      if (auto cached = FromCache(graph, first_key)) return cached;
      return First(std::move(graph), question, first_key, Leader());
    }
    const std::string inherited_key =
        CacheKey(question.key, absl::StrCat("as ", leader->second.engine));
    if (auto cached = FromCache(graph, inherited_key)) return cached;
    return First(std::move(graph), question, inherited_key, leader->second);
  }

  // Returns null if the cache has no plan that can be used. Takes the graph only if it has one.
  std::unique_ptr<CudnnPlan> FromCache(Graph& graph, const std::string& cache_key) {
    std::optional<CachedPlan> cached = cache_.Find(cache_key);
    if (!cached.has_value()) return nullptr;
    absl::StatusOr<BuiltPlan> plan = DeserializePlan(target_->get(), cached->json);
    if (!plan.ok() || graph.WorkspaceBytes(plan->workspace_bytes) > options_.workspace_bytes_max) {
      LogInfo("a plan of the cache is made anew",
              {{"key", cache_key}, {"reason", std::string(plan.status().message())}});
      return nullptr;
    }
    cached->facts.workspace_bytes = graph.WorkspaceBytes(plan->workspace_bytes);
    return std::make_unique<CudnnPlan>(&target_->get(), std::move(graph), *std::move(plan),
                                       std::move(cached->facts));
  }

  Found Measure(Graph graph, const Question& question, const std::string& cache_key) {
    const Target& target = target_->get();
    TY_ASSIGN_OR_RETURN(
        std::vector<Candidate> candidates,
        BuildCandidates(target, graph, question.precision, options_, options_.candidates_max));
    const absl::Status sorted = SortBySpeed(target, graph, candidates);
    // If there is no room to measure in, cuDNN's first proposal is good enough. The next run may
    // find room, so the choice is not kept.
    if (absl::IsResourceExhausted(sorted)) {
      LogWarning("no room to measure plans in",
                 {{"key", cache_key}, {"reason", std::string(sorted.message())}});
    } else {
      TY_RETURN_IF_ERROR(sorted);
      Keep(cache_key, graph, candidates);
    }
    return PlanOf(std::move(graph), candidates);
  }

  // Takes the engine of the leader if it can, else the first proposal.
  Found First(Graph graph, const Question& question, const std::string& cache_key,
              const Leader& leader) {
    TY_ASSIGN_OR_RETURN(std::vector<Candidate> candidates,
                        BuildCandidates(target_->get(), graph, question.precision, options_,
                                        /*max=*/1, leader.engine));
    if (leader.rows > 0 && candidates.front().name == leader.engine) {
      candidates.front().microseconds = leader.microseconds * static_cast<double>(question.rows) /
                                        static_cast<double>(leader.rows);
    }
    Keep(cache_key, graph, candidates);
    return PlanOf(std::move(graph), candidates);
  }

  static PlanFacts FactsOf(const Graph& graph, const std::vector<Candidate>& candidates) {
    const Candidate& best = candidates.front();
    return {.engine = best.name,
            .workspace_bytes = graph.WorkspaceBytes(best.plan.workspace_bytes),
            .candidates = static_cast<int>(candidates.size()),
            .microseconds = best.microseconds};
  }

  std::unique_ptr<CudnnPlan> PlanOf(Graph graph, std::vector<Candidate>& candidates) {
    PlanFacts facts = FactsOf(graph, candidates);
    return std::make_unique<CudnnPlan>(&target_->get(), std::move(graph),
                                       std::move(candidates.front().plan), std::move(facts));
  }

  // A plan that cannot be serialized or written is still used.
  void Keep(const std::string& cache_key, const Graph& graph,
            const std::vector<Candidate>& candidates) {
    absl::StatusOr<std::string> json = SerializePlan(candidates.front().plan);
    if (!json.ok()) return;
    const absl::Status kept = cache_.Put(cache_key, {*std::move(json), FactsOf(graph, candidates)});
    if (kept.ok() || has_warned_) return;
    has_warned_ = true;
    LogWarning("choices among cuDNN's plans are not kept",
               {{"error", std::string(kept.message())}});
  }

  void Lead(const Question& question, const PlanFacts& facts) {
    Leader& leader = leaders_[question.family];
    if (question.rows < leader.rows) return;
    leader = {facts.engine, facts.microseconds, question.rows};
  }

  // Plans differ by device, by version of cuDNN, by option and by the way of choosing.
  std::string CacheKey(const std::string& key, const std::string& way) const {
    return absl::StrCat(key, " | ", target_->get().name, " | cudnn ", cudnnGetVersion(),
                        " | workspace ", options_.workspace_bytes_max, " ", way,
                        options_.deterministic ? " deterministic" : "");
  }

  std::unique_ptr<OpenTarget> target_;
  PlannerOptions options_;
  PlanCache cache_;
  std::map<std::string, Found> measured_;   // by key, found with kMeasure
  std::map<std::string, Found> inherited_;  // by key, found with kInherit
  std::map<std::string, Leader> leaders_;   // by family
  bool has_warned_ = false;
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
