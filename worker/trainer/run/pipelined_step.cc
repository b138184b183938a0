// Implements pipelines that train in parallel, each of several ranks. The first ranks of the gang
// are the first pipeline, whose first rank keeps the state of the whole model for checkpoints.
#include "worker/trainer/run/pipelined_step.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "worker/parallel/hosting.h"
#include "worker/trainer/run/agreement.h"
#include "worker/trainer/run/staged_compute.h"

namespace trainyard::trainer {

PipelinedStep::PipelinedStep(const RunSetup& setup, CompiledStage compiled)
    // No device of a pipeline hosts by itself, so that memory sets no bound to a rank's replicas.
    : StepStrategy(std::move(compiled.model), setup.replicas),
      place_(setup.place),
      replicas_(setup.replicas),
      stage_(*compiled.executable),
      tensors_(std::move(compiled.tensors)),
      predicted_bubble_(compiled.predicted_bubble),
      whole_(tensors_) {}

absl::StatusOr<std::unique_ptr<StepStrategy>> PipelinedStep::Compile(const RunSetup& setup,
                                                                     const std::string& choices) {
  TY_ASSIGN_OR_RETURN(CompiledStage compiled,
                      CompileStage(setup.spec, {.backend = setup.assignment.backend,
                                                .rank = setup.rank,
                                                .world_size = setup.world_size(),
                                                .replicas = setup.replicas,
                                                .threads = setup.mine().threads,
                                                .memory_bytes = setup.memory_bytes,
                                                .shares_memory = setup.shares_memory,
                                                .choices = choices}));
  return std::unique_ptr<StepStrategy>(new PipelinedStep(setup, std::move(compiled)));
}

// A pipeline is as fast as its slowest stage, and no device of it hosts by itself. So replicas stay
// where they are.
absl::StatusOr<GangHosting> PipelinedStep::ChooseHosting(const Gang&, std::vector<int> room,
                                                         const RunIdentity&) {
  const int pipelines = place_.pipelines;
  GangHosting hosting;
  TY_ASSIGN_OR_RETURN(hosting.ranges, parallel::EvenHosting(replicas_, pipelines));
  hosting.reason =
      pipelines == 1 ? "one pipeline computes all" : "even: pipelines do not change theirs";
  hosting.room = std::move(room);
  return hosting;
}

// Connects the stage with its neighbours and with the same stage of the other pipelines.
absl::Status PipelinedStep::Join(const Communicators& lines) {
  host_ = lines.host.get();
  const auto make_link =
      [&](NeighbourLines of) -> absl::StatusOr<std::unique_ptr<parallel::StageLink>> {
    if (stage_.memory_kind() == engine::MemoryKind::kDevice) {
      return lines.make_device_link({.stage = stage_, .lines = std::move(of)});
    }
    return std::make_unique<parallel::HostStageLink>(std::move(of.host), stage_.slots());
  };
  TY_ASSIGN_OR_RETURN(PipelineLinks links,
                      ConnectNeighbours(lines.connect_group, place_.pipeline * place_.stages,
                                        place_.stages, place_.stage, make_link));
  stage_.Connect(std::move(links));
  if (place_.pipelines > 1) {
    TY_ASSIGN_OR_RETURN(siblings_, lines.connect_group(RanksOfStage("siblings", place_)));
  }
  const auto give = [this](size_t i) -> absl::StatusOr<std::vector<float>> {
    std::vector<float> values(static_cast<size_t>(engine::ElementCount(tensors_[i].tensor.shape)));
    TY_RETURN_IF_ERROR(whole_.ReadState(i, absl::MakeSpan(values)));
    return values;
  };
  if (place_.pipeline == 0) {
    TY_RETURN_IF_ERROR(ScatterState(tensors_, give, *host_, stage_));
  }
  return siblings_ == nullptr ? absl::OkStatus() : BroadcastState(*siblings_, stage_);
}

std::unique_ptr<StepCompute> PipelinedStep::MakeCompute(Trace& trace, Clock& clock) {
  return std::make_unique<StagedCompute>(stage_, trace, clock, model().computes_replicas_alone);
}

// The exchange is between the ranks of one stage, so ballots travel separately.
absl::StatusOr<std::vector<Ballot>> PipelinedStep::Vote(const Ballot& mine) {
  Ballot cast = mine;
  // All stages of a pipeline skip the same samples; the first one counts them.
  if (place_.stage != 0) cast.skipped = 0;
  TY_ASSIGN_OR_RETURN(const std::vector<double> all, GatherNumbers(*host_, EncodeBallot(cast)));
  return DecodeBallots(all);
}

absl::Status PipelinedStep::GatherWholeState() {
  if (place_.pipeline != 0) return absl::OkStatus();
  return GatherState(tensors_, stage_, *host_, [this](size_t i, const std::vector<float>& values) {
    return whole_.WriteState(i, values);
  });
}

// Logs the prediction of the pipeline together with the measurement.
std::map<std::string, double> PipelinedStep::Summarize() const {
  const PipelineExecutable::Steps& measured = stage_.measured_steps();
  if (measured.count == 0) return {};
  const double total = absl::ToDoubleSeconds(measured.times.total);
  const double seconds = total / static_cast<double>(measured.count);
  const double waited = 1 - absl::ToDoubleSeconds(measured.times.computed) / total;
  LogInfo("trained a stage", {{"pipeline", absl::StrCat(place_.pipeline)},
                              {"stage", absl::StrCat(place_.stage)},
                              {"step_seconds", absl::StrCat(seconds)},
                              {"waited", absl::StrCat(waited)},
                              {"predicted_bubble", absl::StrCat(predicted_bubble_)}});
  return {{"pipeline.step_seconds", seconds},
          {"pipeline.waited", waited},
          {"pipeline.predicted_bubble", predicted_bubble_}};
}

}  // namespace trainyard::trainer
