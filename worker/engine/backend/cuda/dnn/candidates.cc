// Filters, builds and measures cuDNN's proposals.
#include "worker/engine/backend/cuda/dnn/candidates.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "worker/engine/backend/cuda/dnn/cudnn_plan.h"
#include "worker/engine/backend/cuda/dnn/room.h"
#include "worker/engine/backend/cuda/tuning/agreement.h"
#include "worker/engine/backend/cuda/tuning/bench.h"

namespace trainyard::engine::cuda::dnn {

bool IsAllowed(const EngineConfig& engine, Precision precision, bool deterministic) {
  if (engine.has(CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION) ||
      engine.has(CUDNN_BEHAVIOR_NOTE_REQUIRES_FILTER_INT8x32_REORDER) ||
      engine.has(CUDNN_BEHAVIOR_NOTE_REQUIRES_BIAS_INT8x32_REORDER)) {
    return false;
  }
  if (deterministic && engine.has(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)) {
    return false;
  }
  // This note means f16. tf32 keeps the range of f32, and has no such note.
  if (engine.has(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS)) {
    return false;
  }
  return !precision.is_f32 || precision.tf32 || !engine.has(CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
}

namespace {

// Chooses the proposals that may be used, until there are enough.
class CandidateChooser {
 public:
  CandidateChooser(PlanBuilder& builder, const Graph& graph, const CandidateOptions& options)
      : builder_(builder), graph_(graph), options_(options) {}

  bool is_full() const { return static_cast<int>(candidates_.size()) >= options_.max; }
  void Refuse(std::string reason) { refusal_ = std::move(reason); }

  void TryAll(const std::vector<EngineConfig>& engines) {
    std::vector<const EngineConfig*> allowed;
    for (const EngineConfig& engine : engines) {
      if (seen_.insert(engine.name).second && IsUsable(engine)) allowed.push_back(&engine);
    }
    // Those of which no plan can be built are replaced by the next.
    for (size_t begin = 0; begin < allowed.size() && !is_full();) {
      const size_t count =
          std::min(allowed.size() - begin, static_cast<size_t>(options_.max) - candidates_.size());
      Take(absl::MakeConstSpan(allowed).subspan(begin, count));
      begin += count;
    }
  }

  absl::StatusOr<std::vector<Candidate>> Finish() && {
    if (candidates_.empty()) {
      return absl::NotFoundError(absl::StrCat("cuDNN has no plan: ", refusal_));
    }
    return std::move(candidates_);
  }

 private:
  bool IsUsable(const EngineConfig& engine) {
    if (!IsAllowed(engine, options_.precision, options_.planner.deterministic)) {
      Refuse(absl::StrCat(engine.name, " does not keep precision or determinism"));
      return false;
    }
    if (Fits(engine.workspace_bytes)) return true;
    Refuse(absl::StrCat(engine.name, " needs ", graph_.WorkspaceBytes(engine.workspace_bytes),
                        " bytes of workspace, of ", options_.planner.workspace_bytes_max));
    return false;
  }

  bool Fits(int64_t plan_bytes) const {
    return graph_.WorkspaceBytes(plan_bytes) <= options_.planner.workspace_bytes_max;
  }

  void Take(absl::Span<const EngineConfig* const> engines) {
    if (!options_.builds) {
      for (const EngineConfig* engine : engines) {
        candidates_.push_back({.plan = {.plan = {}, .workspace_bytes = engine->workspace_bytes},
                               .name = engine->name});
      }
      return;
    }
    std::vector<absl::StatusOr<BuiltPlan>> plans = builder_.Build(engines);
    for (size_t i = 0; i < plans.size(); ++i) {
      if (plans[i].ok() && !Fits(plans[i]->workspace_bytes)) {
        Refuse(absl::StrCat(engines[i]->name, " needs more workspace than it announced"));
      } else if (plans[i].ok()) {
        candidates_.push_back({.plan = *std::move(plans[i]), .name = engines[i]->name});
      } else {
        Refuse(std::string(plans[i].status().message()));
      }
    }
  }

  PlanBuilder& builder_;
  const Graph& graph_;
  const CandidateOptions& options_;
  std::vector<Candidate> candidates_;
  std::set<std::string> seen_;
  std::string refusal_ = "its heuristics propose none";
};

// Returns "engine 40" of "engine 40 {24=3 2=17}".
absl::string_view WithoutSettings(absl::string_view name) {
  return name.substr(0, name.find(" {"));
}

int Distance(absl::string_view name, absl::string_view preferred) {
  if (name == preferred) return 0;
  return WithoutSettings(name) == WithoutSettings(preferred) ? 1 : 2;
}

constexpr double kNotRun = std::numeric_limits<double>::infinity();

absl::Status RunArbiter(const Comparison& comparison, const Room& room, const std::string& problem,
                        Bench& bench) {
  const absl::StatusOr<void*> workspace = bench.Allocate(comparison.arbiter_workspace_bytes);
  absl::Status ran = workspace.status();
  if (ran.ok()) ran = comparison.arbiter(room.bindings, *workspace, bench.stream());
  if (!ran.ok()) {
    LogWarning("our own kernel does not run, so plans are compared with each other only",
               {{"problem", problem}, {"reason", std::string(ran.message())}});
  }
  return ran;
}

// Tells of each candidate that differs, and refuses it if another one agrees.
void RefuseDifferent(const Agreement& agreement, std::vector<Candidate>& candidates,
                     PlanRecord& record) {
  const std::string reference = agreement.reference.has_value()
                                    ? candidates[*agreement.reference].name
                                    : std::string("our own kernel");
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (!agreement.Differs(i)) continue;
    if (!record.is_disputed) candidates[i].microseconds = kNotRun;
    record.refused.push_back(absl::StrCat(candidates[i].name, " differs from ", reference, " by ",
                                          agreement.differences[i],
                                          " times what rounding explains"));
    LogWarning(record.is_disputed ? "no plan of cuDNN's computes what our own kernel does"
                                  : "a plan of cuDNN's computes something else, and is refused",
               {{"problem", record.problem}, {"reason", record.refused.back()}});
  }
}

absl::Status Compare(const Graph& graph, const Room& room, const Comparison& comparison,
                     Bench& bench, std::vector<Candidate>& candidates, PlanRecord& record) {
  const auto run = [&](size_t i) -> absl::Status {
    if (candidates[i].microseconds == kNotRun) return absl::NotFoundError("it does not run");
    return Execute(candidates[i].plan, graph, room.bindings, room.workspace, bench.stream());
  };
  std::function<absl::Status()> arbiter;
  if (comparison.arbiter != nullptr) {
    arbiter = [&] { return RunArbiter(comparison, room, record.problem, bench); };
  }
  TY_ASSIGN_OR_RETURN(const Agreement agreement,
                      CompareCandidates(bench, OutputsIn(room, comparison.written),
                                        candidates.size(), run, arbiter));
  record.is_verified = true;
  record.compared_with = agreement.compared_with();
  record.difference = agreement.largest();
  record.is_disputed = agreement.is_disputed();
  RefuseDifferent(agreement, candidates, record);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Candidate>> FindCandidates(PlanBuilder& builder, const Graph& graph,
                                                      const CandidateOptions& options) {
  const absl::string_view preferred = options.preferred;
  CandidateChooser chooser(builder, graph, options);
  std::vector<EngineConfig> all;
  for (const cudnnBackendHeurMode_t mode :
       {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B, CUDNN_HEUR_MODE_FALLBACK}) {
    absl::StatusOr<std::vector<EngineConfig>> engines =
        AskHeuristics(builder.target(), graph, mode);
    if (!engines.ok()) {
      // Another mode may know the graph even if this one does not.
      chooser.Refuse(std::string(engines.status().message()));
    } else if (preferred.empty()) {
      chooser.TryAll(*engines);
      if (chooser.is_full()) break;
    } else {
      std::move(engines->begin(), engines->end(), std::back_inserter(all));
    }
  }
  std::stable_sort(all.begin(), all.end(), [&](const EngineConfig& a, const EngineConfig& b) {
    return Distance(a.name, preferred) < Distance(b.name, preferred);
  });
  chooser.TryAll(all);
  return std::move(chooser).Finish();
}

absl::Status SortBySpeed(PlanBuilder& builder, const Graph& graph,
                         std::vector<Candidate>& candidates, const Comparison& comparison,
                         PlanRecord* record) {
  Bench bench;
  TY_RETURN_IF_ERROR(bench.Open());
  int64_t workspace_bytes = 1;
  for (const Candidate& candidate : candidates) {
    workspace_bytes =
        std::max(workspace_bytes, graph.WorkspaceBytes(candidate.plan.workspace_bytes));
  }
  TY_ASSIGN_OR_RETURN(const Room room, MakeRoom(graph, workspace_bytes, bench));
  std::string failure;
  for (Candidate& candidate : candidates) {
    const absl::StatusOr<double> time = bench.Microseconds([&] {
      return Execute(candidate.plan, graph, room.bindings, room.workspace, bench.stream());
    });
    if (time.ok()) {
      candidate.microseconds = *time;
      continue;
    }
    TY_RETURN_IF_ERROR(bench.CheckDevice(time.status()));
    candidate.microseconds = kNotRun;
    failure = absl::StrCat(candidate.name, ": ", time.status().message());
    LogInfo("a plan of cuDNN's does not run",
            {{"engine", candidate.name}, {"reason", std::string(time.status().message())}});
  }
  if (!comparison.written.empty()) {
    TY_RETURN_IF_ERROR(Compare(graph, room, comparison, bench, candidates, *record));
  }
  // The stream of the measurement ends with it, so the handles must release it.
  builder.ReleaseStreams();
  std::stable_sort(
      candidates.begin(), candidates.end(),
      [](const Candidate& a, const Candidate& b) { return a.microseconds < b.microseconds; });
  if (candidates.front().microseconds == kNotRun) {
    return absl::NotFoundError(
        absl::StrCat("no plan of cuDNN's runs on this device; the last is ", failure));
  }
  return absl::OkStatus();
}

}  // namespace trainyard::engine::cuda::dnn
