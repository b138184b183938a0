// Plans a pipeline: chooses the cuts if the spec leaves them open, then asks the backend what each
// stage takes and predicts the schedule.
#include "worker/trainer/plan/planned_pipeline.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"
#include "worker/engine/graph/split.h"
#include "worker/engine/make_backend.h"
#include "worker/parallel/partition.h"
#include "worker/parallel/replicas.h"
#include "worker/trainer/plan/model_setup.h"
#include "worker/trainer/plan/roofline.h"

namespace trainyard::trainer {
namespace {

// With this many, the bubble is at most a fifth of the time (Huang et al. 2018, section 3.1).
constexpr int kMicrobatchesPerStage = 4;
// A value that crosses a cut is written by one rank and read by another.
constexpr double kLinkCopies = 2;

absl::string_view ScheduleName(v1::PipelineSchedule schedule) {
  switch (schedule) {
    case v1::PIPELINE_SCHEDULE_GPIPE:
      return "gpipe";
    case v1::PIPELINE_SCHEDULE_SEQUENTIAL:
      return "sequential";
    default:
      return "1f1b";
  }
}

// Returns the number of microbatches into which a pipeline cuts its rows of a step.
int MicrobatchesOf(const v1::StagesSpec& stages, int64_t rows) {
  if (stages.schedule() == v1::PIPELINE_SCHEDULE_SEQUENTIAL) return 1;
  const int wanted =
      stages.microbatches() > 0 ? stages.microbatches() : kMicrobatchesPerStage * stages.count();
  return static_cast<int>(std::clamp<int64_t>(wanted, 1, std::max<int64_t>(1, rows)));
}

int64_t CountParameters(const engine::Graph& graph, size_t begin, size_t end) {
  int64_t parameters = 0;
  for (size_t i = begin; i < end; ++i) {
    for (const engine::ValueId input : graph.nodes[i].inputs) {
      const engine::Value& value = graph.value(input);
      if (value.role == engine::Role::kParameter) parameters += engine::ElementCount(value.shape);
    }
  }
  return parameters;
}

class Planner {
 public:
  Planner(const v1::JobSpec& spec, const PipelinePlanOptions& options)
      : spec_(spec), options_(options) {}

  absl::StatusOr<PlannedPipeline> Run() {
    const int count = spec_.stages().count();
    if (spec_.devices().count() % count != 0) {
      return absl::InvalidArgumentError(absl::StrCat(spec_.devices().count(),
                                                     " devices; expected a multiple "
                                                     "of ",
                                                     count, " stages"));
    }
    plan_.pipelines = spec_.devices().count() / count;
    const CompileTarget target = {.backend = options_.backend,
                                  .rank = 0,
                                  .world_size = plan_.pipelines,
                                  .threads = options_.threads};
    TY_ASSIGN_OR_RETURN(model_, PrepareModel(spec_, target));
    TY_ASSIGN_OR_RETURN(backend_, engine::MakeBackend(options_.backend));
    plan_.name = spec_.name();
    plan_.backend = options_.backend;
    plan_.precision = model_.options.precision;
    plan_.threads = options_.threads;
    plan_.schedule = std::string(ScheduleName(spec_.stages().schedule()));
    plan_.global_batch = spec_.train().global_batch();
    plan_.memory_limit = options_.memory_bytes;
    CutRows();
    plan_.cuts.assign(spec_.stages().cuts().begin(), spec_.stages().cuts().end());
    plan_.is_chosen = plan_.cuts.empty();
    if (plan_.is_chosen) TY_RETURN_IF_ERROR(ChooseCuts());
    TY_RETURN_IF_ERROR(PlanEachStage());
    std::vector<parallel::StageTimes> times;
    for (const PlannedStage& stage : plan_.stages) times.push_back(stage.times);
    plan_.prediction = parallel::PredictPipeline(ScheduleOf(spec_.stages().schedule()), times,
                                                 links_, plan_.microbatches);
    return std::move(plan_);
  }

 private:
  // If replicas are computed one by one, each is a microbatch.
  void CutRows() {
    if (model_.computes_replicas_alone) {
      plan_.microbatch_rows = model_.options.max_rows;
      plan_.microbatches = static_cast<int>((model_.hosted_rows + plan_.microbatch_rows - 1) /
                                            plan_.microbatch_rows);
      return;
    }
    plan_.microbatches = MicrobatchesOf(spec_.stages(), model_.hosted_rows);
    plan_.microbatch_rows = parallel::ReplicaRows(model_.hosted_rows, 0, plan_.microbatches).size();
  }

  int SlotsOf(int stage) const {
    return std::max(1, parallel::PeakSlots(ScheduleOf(spec_.stages().schedule()),
                                           spec_.stages().count(), stage, plan_.microbatches));
  }
  double SpeedOf(size_t stage) const {
    return options_.speeds.empty() ? 1 : options_.speeds[stage];
  }

  absl::Status ChooseCuts() {
    const std::vector<engine::CutPoint> cuts = engine::PossibleCuts(model_.graph);
    std::vector<size_t> begins = {0};
    for (const engine::CutPoint& cut : cuts) begins.push_back(cut.node);
    const size_t segments = begins.size();
    begins.push_back(model_.graph.nodes.size());
    parallel::PartitionProblem problem;
    problem.segment_seconds = SecondsOfSegments(begins);
    std::vector<int64_t> fixed;  // bytes whatever the slots
    std::vector<int64_t> kept;   // bytes of one slot
    for (size_t i = 0; i < segments; ++i) {
      fixed.push_back(FixedBytes(begins[i], begins[i + 1]));
      kept.push_back(KeptBytes(begins[i], begins[i + 1]));
    }
    for (int s = 0; s < spec_.stages().count(); ++s) {
      problem.speeds.push_back(SpeedOf(static_cast<size_t>(s)));
    }
    if (options_.memory_bytes > 0) {
      problem.fits = [&](int stage, int begin, int end) {
        int64_t bytes = 0;
        for (int i = begin; i < end; ++i) {
          bytes += fixed[static_cast<size_t>(i)] + SlotsOf(stage) * kept[static_cast<size_t>(i)];
        }
        return bytes <= options_.memory_bytes;
      };
    }
    const std::optional<parallel::Partition> found = parallel::SolvePartition(problem);
    if (!found.has_value() && segments < problem.speeds.size()) {
      return absl::InvalidArgumentError(absl::StrCat("this model can be cut in ", cuts.size(),
                                                     " places; expected at least ",
                                                     spec_.stages().count() - 1));
    }
    if (!found.has_value()) {
      return absl::ResourceExhaustedError(
          absl::StrCat("no cuts into ", spec_.stages().count(), " stages let each fit into ",
                       FormatBytes(options_.memory_bytes), "; use more stages"));
    }
    for (const int first : found->first_segments) {
      plan_.cuts.push_back(cuts[static_cast<size_t>(first) - 1].layer);
    }
    return absl::OkStatus();
  }

  // Returns the seconds of a training step of one microbatch. A gradient has the name of its layer.
  std::vector<double> SecondsOfSegments(const std::vector<size_t>& begins) const {
    std::map<std::string, size_t> segment_of;
    for (size_t s = 0; s + 1 < begins.size(); ++s) {
      for (size_t i = begins[s]; i < begins[s + 1]; ++i) {
        segment_of[model_.graph.nodes[i].name] = s;
      }
    }
    const engine::StepGraph step =
        engine::BuildTrainingStep(model_.graph, {.passes = model_.options.passes});
    std::vector<double> seconds(begins.size() - 1, 0);
    const MachineSpeed& machine =
        options_.machine.flops_per_second > 0 ? options_.machine : kCommonMachine;
    size_t segment = 0;
    for (const engine::Node& node : step.graph.nodes) {
      const auto found = segment_of.find(node.name);
      // Passes and sums of gradients name nodes themselves. These stand beside their layer.
      if (found != segment_of.end()) segment = found->second;
      seconds[segment] += NodeSeconds(step.graph, node, plan_.microbatch_rows, machine);
    }
    return seconds;
  }

  // Returns the bytes of parameters, their gradients, and what the optimizer keeps. Each pipeline
  // may keep only a part of its slots.
  int64_t FixedBytes(size_t begin, size_t end) const {
    const int64_t copies = 2 + (model_.optimizer.ema_decay > 0 ? 1 : 0);
    const auto slots = static_cast<int64_t>(engine::SlotNames(model_.optimizer).size());
    const int64_t parameters = CountParameters(model_.graph, begin, end);
    const int parts = DividesSlots(spec_, options_.backend, plan_.pipelines) ? plan_.pipelines : 1;
    return (parameters * copies + parameters * slots / parts) * int64_t{sizeof(float)};
  }

  // Returns the bytes of an element of an activation, where it is kept and where it crosses a cut.
  int64_t ValueBytes() const {
    const engine::Precision precision = model_.options.precision;
    const bool is_short =
        precision == engine::Precision::kBf16 || precision == engine::Precision::kF16;
    // On the CPU, values cross as floats in any precision.
    return options_.backend == kCudaBackend && is_short ? sizeof(uint16_t) : sizeof(float);
  }

  int64_t KeptBytes(size_t begin, size_t end) const {
    int64_t bytes = 0;
    for (size_t i = begin; i < end; ++i) {
      const engine::Node& node = model_.graph.nodes[i];
      if (node.op == engine::OpKind::kFlatten) continue;
      bytes += model_.graph.value(node.outputs[0]).Elements(plan_.microbatch_rows) * ValueBytes();
    }
    return bytes;
  }

  absl::Status PlanEachStage() {
    TY_ASSIGN_OR_RETURN(const std::vector<engine::Graph> graphs,
                        engine::SplitModel(model_.graph, plan_.cuts));
    if (static_cast<int>(graphs.size()) != spec_.stages().count()) {
      return absl::InvalidArgumentError(
          absl::StrCat(plan_.cuts.size(), " cuts; expected ", spec_.stages().count() - 1));
    }
    engine::CompileOptions options = model_.options;
    options.max_rows = plan_.microbatch_rows;
    for (size_t s = 0; s < graphs.size(); ++s) {
      const engine::Graph& graph = graphs[s];
      options.microbatch_slots = SlotsOf(static_cast<int>(s));
      // The blocks of the first pipeline are the largest.
      options.owned = OwnedRanges(spec_, options_.backend, graph, /*rank=*/0, plan_.pipelines);
      TY_ASSIGN_OR_RETURN(const engine::CompilePlan compiled,
                          backend_->Plan(graph, model_.optimizer, options));
      options.stage_input = compiled.stage_output;
      const bool is_last = s + 1 == graphs.size();
      const size_t last_node = graph.nodes.size() - (is_last ? 1 : 2);
      plan_.stages.push_back({.first_layer = graph.nodes[0].name,
                              .last_layer = graph.nodes[last_node].name,
                              .parameters = CountParameters(graph, 0, graph.nodes.size()),
                              .slots = options.microbatch_slots,
                              .memory = compiled.memory,
                              .times = TimesOf(graph, s),
                              .fallbacks = compiled.fallbacks});
      if (options_.memory_bytes > 0 && compiled.memory.total() > options_.memory_bytes) {
        const absl::Status misfit = engine::CheckFits(compiled.memory, options_.memory_bytes, 0);
        return absl::ResourceExhaustedError(absl::StrCat("stage ", s, ": ", misfit.message()));
      }
      if (!is_last && options_.machine.bytes_per_second > 0) {
        const auto bytes = static_cast<double>(
            graph.value(graph.stage_output).Elements(plan_.microbatch_rows) * ValueBytes());
        links_.push_back(kLinkCopies * bytes / options_.machine.bytes_per_second);
      }
    }
    return absl::OkStatus();
  }

  parallel::StageTimes TimesOf(const engine::Graph& graph, size_t stage) const {
    const engine::StepGraph step =
        engine::BuildTrainingStep(graph, {.passes = model_.options.passes});
    const size_t forward = engine::ForwardNodes(step);
    parallel::StageTimes times;
    for (size_t i = 0; i < step.graph.nodes.size(); ++i) {
      const double seconds =
          NodeSeconds(step.graph, step.graph.nodes[i], plan_.microbatch_rows, options_.machine) /
          SpeedOf(stage);
      (i < forward ? times.forward : times.backward) += seconds;
    }
    return times;
  }

  const v1::JobSpec& spec_;
  const PipelinePlanOptions& options_;
  PreparedModel model_;
  std::unique_ptr<engine::Backend> backend_;
  std::vector<double> links_;  // seconds
  PlannedPipeline plan_;
};

}  // namespace

parallel::PipelineSchedule ScheduleOf(v1::PipelineSchedule schedule) {
  switch (schedule) {
    case v1::PIPELINE_SCHEDULE_GPIPE:
      return parallel::PipelineSchedule::kGpipe;
    case v1::PIPELINE_SCHEDULE_SEQUENTIAL:
      return parallel::PipelineSchedule::kSequential;
    default:
      return parallel::PipelineSchedule::k1F1B;
  }
}

absl::StatusOr<PlannedPipeline> PlanPipeline(const v1::JobSpec& spec,
                                             const PipelinePlanOptions& options) {
  return Planner(spec, options).Run();
}

}  // namespace trainyard::trainer
