// Finds the plan for a problem: in memory, in the cache, or by asking and measuring cuDNN.
#include "worker/engine/backend/cuda/dnn/planner.h"

#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "worker/engine/backend/cuda/dnn/attention_graph.h"
#include "worker/engine/backend/cuda/dnn/bindings.h"
#include "worker/engine/backend/cuda/dnn/candidates.h"
#include "worker/engine/backend/cuda/dnn/conv_graph.h"
#include "worker/engine/backend/cuda/dnn/cudnn_plan.h"
#include "worker/engine/backend/cuda/dnn/exactness.h"
#include "worker/engine/backend/cuda/dnn/plan_builder.h"
#include "worker/engine/backend/cuda/dnn/plan_cache.h"
#include "worker/engine/backend/cuda/dnn/target.h"

namespace trainyard::engine::cuda::dnn {
namespace {

class CudnnPlanner : public Planner {
 public:
  CudnnPlanner(std::unique_ptr<OpenTarget> target, const PlannerOptions& options)
      : builder_(std::move(target), options.build_threads),
        options_(options),
        cache_(options.cache_folder) {}

  absl::StatusOr<const Plan*> Find(const ConvProblem& problem, Effort effort) override {
    const Precision precision = {problem.type == Type::kF32, problem.tf32};
    return FindOrMake(
        {problem.Key(), problem.Family(), problem.rows, precision, ComparisonFor(problem)}, effort,
        [&](cudnnHandle_t handle) { return BuildConvGraph(problem, handle); });
  }

  absl::StatusOr<const Plan*> Find(const AttentionProblem& problem, Effort effort) override {
    return FindOrMake(
        {problem.Key(), problem.Family(), problem.rows, Precision(), ComparisonFor(problem)},
        effort, [&](cudnnHandle_t handle) {
          return BuildAttentionGraph(problem, options_.deterministic, handle);
        });
  }

  std::vector<std::string> MeasuredChoices() override {
    std::vector<std::string> texts;
    for (const std::string& key : measured_) {
      if (const auto choice = cache_.Find(key)) texts.push_back(PlanCache::Encode(key, *choice));
    }
    return texts;
  }

  void TakeChoice(const std::string& text) override {
    const absl::Status taken = cache_.Take(text);
    if (absl::IsInvalidArgument(taken)) {
      LogWarning("a choice of another rank is ignored", {{"reason", std::string(taken.message())}});
    } else if (!taken.ok()) {
      WarnThatNothingIsKept(taken);
    }
  }

  int64_t workspace_bytes_max() const override { return options_.workspace_bytes_max; }

  void ReleaseStream() override { builder_.ReleaseStreams(); }
  void EndChoosing() override { builder_.CloseHelpers(); }

  absl::StatusOr<std::string> DeviceDescription() override {
    const Target& target = builder_.target();
    return target.has_device() ? DescribeDevice(target.handle)
                               : absl::StatusOr<std::string>(target.description);
  }

 private:
  using Found = absl::StatusOr<std::unique_ptr<Plan>>;

  struct Question {
    std::string key;
    std::string family;
    int64_t rows = 0;
    Precision precision;
    Comparison comparison;
  };

  // The measured choice that problems with fewer rows take over.
  struct Leader {
    std::string engine;
    double microseconds = 0;
    int64_t rows = 0;
  };

  // The way in which a plan is chosen, which is a part of its key.
  struct Way {
    std::string name;
    bool measures = false;
    bool estimates = false;
    Leader leader = {};  // its engine is empty if there is none
  };

  template <typename Problem>
  Comparison ComparisonFor(const Problem& problem) const {
    if (!options_.scrutiny.verifies) return {};
    Comparison comparison = {.written = WrittenBy(problem)};
    if (const Arbiter* const arbiter = options_.arbiter) {
      comparison.arbiter_workspace_bytes = arbiter->WorkspaceBytes(problem);
      comparison.arbiter = [arbiter, problem](const Bindings& bindings, void* workspace,
                                              cudaStream_t stream) {
        return arbiter->Run(problem, MemoryOf(problem, bindings), workspace, stream);
      };
    }
    return comparison;
  }

  std::string Measured() const { return absl::StrCat("measured ", options_.candidates_max); }

  // A measured choice stays the answer. A rank that resumes must find the same plan again, so a
  // problem follows the leader of its own run, whatever other runs have measured for it.
  Way WayOf(const Question& question, Effort effort) {
    const bool can_measure = options_.autotunes && builder_.target().has_device();
    const std::string measured = Measured();
    if (effort == Effort::kMeasure && can_measure) return {.name = measured, .measures = true};
    if (plans_.contains(CacheKey(question.key, measured))) return {.name = measured};
    if (effort == Effort::kEstimate) return {.name = "estimated", .estimates = true};
    const auto leader = leaders_.find(question.family);
    if (leader == leaders_.end()) {
      // A measurement of an earlier run serves as well.
      return {.name = cache_.Find(CacheKey(question.key, measured)) ? measured : "first"};
    }
    return {.name = absl::StrCat("as ", leader->second.engine), .leader = leader->second};
  }

  // Remembers what was found, and also if nothing was found.
  template <typename Build>
  absl::StatusOr<const Plan*> FindOrMake(const Question& question, Effort effort,
                                         const Build& build) {
    const Way way = WayOf(question, effort);
    const std::string cache_key = CacheKey(question.key, way.name);
    auto known = plans_.find(cache_key);
    if (known == plans_.end()) {
      PlanRecord record = {.problem = question.key};
      Found made = Make(build(builder_.target().handle), question, way, cache_key, record);
      if (!made.ok()) {
        made = Annotate(made.status(), question.key);
      } else if (!way.estimates) {
        Report(std::move(record), (*made)->facts());
      }
      known = plans_.emplace(cache_key, std::move(made)).first;
    }
    if (!known->second.ok()) {
      return known->second.status();
    }
    const Plan* const plan = known->second->get();
    if (way.measures) {
      measured_.insert(cache_key);
      Lead(question, plan->facts());
    }
    return plan;
  }

  void Report(PlanRecord record, const PlanFacts& facts) {
    if (options_.scrutiny.records == nullptr) return;
    record.engine = facts.engine;
    record.candidates = facts.candidates;
    record.microseconds = facts.microseconds;
    record.workspace_bytes = facts.workspace_bytes;
    record.from_cache = facts.from_cache;
    options_.scrutiny.records->push_back(std::move(record));
  }

  // Returns NOT_FOUND for a graph that cuDNN refuses.
  Found Make(absl::StatusOr<Graph> graph, const Question& question, const Way& way,
             const std::string& cache_key, PlanRecord& record) {
    if (absl::IsUnimplemented(graph.status()) || absl::IsInvalidArgument(graph.status())) {
      return absl::NotFoundError(graph.status().message());
    }
    if (!graph.ok()) {
      return graph.status();
    }
    if (way.estimates) return Estimate(*graph, question);
    // A choice of an earlier run was not verified, or with other candidates.
    const bool is_verified = way.measures && options_.scrutiny.verifies;
    if (auto cached = is_verified ? nullptr : FromCache(*graph, cache_key)) {
      return cached;
    }
    if (way.measures) return Measure(*std::move(graph), question, cache_key, record);
    const bool is_first = way.leader.engine.empty();
    return First(*std::move(graph), question,
                 is_first ? CacheKey(question.key, "first") : cache_key, way.leader);
  }

  // Returns null if the cache has no plan that can be used. Takes the graph only if it has one.
  std::unique_ptr<CudnnPlan> FromCache(Graph& graph, const std::string& cache_key) {
    std::optional<CachedPlan> cached = cache_.Find(cache_key);
    if (!cached.has_value()) return nullptr;
    absl::StatusOr<BuiltPlan> plan = DeserializePlan(builder_.target(), cached->json);
    if (!plan.ok() || graph.WorkspaceBytes(plan->workspace_bytes) > options_.workspace_bytes_max) {
      LogInfo("a plan of the cache is made anew",
              {{"key", cache_key}, {"reason", std::string(plan.status().message())}});
      return nullptr;
    }
    cached->facts.workspace_bytes = graph.WorkspaceBytes(plan->workspace_bytes);
    return std::make_unique<CudnnPlan>(std::move(graph), *std::move(plan),
                                       std::move(cached->facts));
  }

  Found Measure(Graph graph, const Question& question, const std::string& cache_key,
                PlanRecord& record) {
    TY_ASSIGN_OR_RETURN(std::vector<Candidate> candidates,
                        FindCandidates(builder_, graph,
                                       {.planner = options_,
                                        .precision = question.precision,
                                        .max = options_.candidates_max}));
    const absl::Status sorted =
        SortBySpeed(builder_, graph, candidates, question.comparison, &record);
    // If there is no room to measure in, cuDNN's first proposal is good enough. The next run may
    // find room, so the choice is not kept. Nor is one that may be wrong.
    if (absl::IsResourceExhausted(sorted)) {
      LogWarning("no room to measure plans in",
                 {{"key", cache_key}, {"reason", std::string(sorted.message())}});
    } else {
      TY_RETURN_IF_ERROR(sorted);
      if (!record.is_disputed) Keep(cache_key, graph, candidates);
    }
    return PlanOf(std::move(graph), candidates);
  }

  // Tells what a run would take: what was measured for it, by whichever run, or else the first
  // proposal.
  Found Estimate(const Graph& graph, const Question& question) {
    const auto measured =
        options_.autotunes ? cache_.Find(CacheKey(question.key, Measured())) : std::nullopt;
    if (measured.has_value()) return std::make_unique<EstimatedPlan>(measured->facts);
    TY_ASSIGN_OR_RETURN(
        const std::vector<Candidate> candidates,
        FindCandidates(builder_, graph,
                       {.planner = options_, .precision = question.precision, .builds = false}));
    return std::make_unique<EstimatedPlan>(FactsOf(graph, candidates));
  }

  // Takes the engine of the leader if it can, else the first proposal.
  Found First(Graph graph, const Question& question, const std::string& cache_key,
              const Leader& leader) {
    TY_ASSIGN_OR_RETURN(
        std::vector<Candidate> candidates,
        FindCandidates(
            builder_, graph,
            {.planner = options_, .precision = question.precision, .preferred = leader.engine}));
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
    BuiltPlan& best = candidates.front().plan;
    best = builder_.Adopt(std::move(best));
    PlanFacts facts = FactsOf(graph, candidates);
    return std::make_unique<CudnnPlan>(std::move(graph), std::move(best), std::move(facts));
  }

  // A plan that cannot be serialized or written is still used.
  void Keep(const std::string& cache_key, const Graph& graph,
            const std::vector<Candidate>& candidates) {
    absl::StatusOr<std::string> json = SerializePlan(candidates.front().plan);
    if (!json.ok()) return;
    const absl::Status kept = cache_.Put(cache_key, {*std::move(json), FactsOf(graph, candidates)});
    if (!kept.ok()) WarnThatNothingIsKept(kept);
  }

  void WarnThatNothingIsKept(const absl::Status& error) {
    if (has_warned_) return;
    has_warned_ = true;
    LogWarning("choices among cuDNN's plans are not kept",
               {{"error", std::string(error.message())}});
  }

  void Lead(const Question& question, const PlanFacts& facts) {
    Leader& leader = leaders_[question.family];
    if (question.rows < leader.rows) return;
    leader = {facts.engine, facts.microseconds, question.rows};
  }

  // Plans differ by device, by version of cuDNN, by option and by the way of choosing.
  std::string CacheKey(const std::string& key, const std::string& way) const {
    return absl::StrCat(key, " | ", builder_.target().name, " | cudnn ", cudnnGetVersion(),
                        " | workspace ", options_.workspace_bytes_max, " ", way,
                        options_.deterministic ? " deterministic" : "");
  }

  PlanBuilder builder_;
  PlannerOptions options_;
  PlanCache cache_;
  std::map<std::string, Found> plans_;     // by key of the cache
  std::set<std::string> measured_;         // the keys of measured choices
  std::map<std::string, Leader> leaders_;  // by family
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
