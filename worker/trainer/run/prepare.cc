// Prepares the first step in a straight line of functions; PrepareRun at the end calls them in
// order. Collectives are in the same order on all ranks.
#include "worker/trainer/run/prepare.h"

#include <algorithm>
#include <future>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/errors.h"
#include "common/base/ids.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "worker/data/open_dataset.h"
#include "worker/trainer/plan/model_setup.h"
#include "worker/trainer/run/agreement.h"
#include "worker/trainer/run/compile_in_turn.h"
#include "worker/trainer/run/pipelined_step.h"
#include "worker/trainer/run/resume_point.h"
#include "worker/trainer/run/row_form.h"
#include "worker/trainer/run/row_source.h"
#include "worker/trainer/run/step_exchange.h"
#include "worker/trainer/run/step_pace.h"
#include "worker/trainer/run/training_state.h"
#include "worker/trainer/run/whole_step.h"

namespace trainyard::trainer {
namespace {

absl::StatusOr<Communicators> ConnectRanks(const RunSetup& setup, const Connect& connect,
                                           engine::MemoryKind arena) {
  TY_ASSIGN_OR_RETURN(Communicators lines, connect(setup.assignment, arena));
  TY_CHECK(setup.world_size() == 1 || arena == engine::MemoryKind::kHost ||
           lines.make_device_exchange != nullptr);
  TY_CHECK(setup.place.stages == 1 || arena == engine::MemoryKind::kHost ||
           lines.make_device_link != nullptr);
  return lines;
}

bool OneMeasuresForAll(const RunSetup& setup) {
  return setup.assignment.backend == kCudaBackend && setup.world_size() > 1;
}

// A gang of GPUs connects before it compiles, since one rank measures for the others. Other runs
// connect when they have compiled, and get no lines here.
absl::StatusOr<Communicators> ConnectEarly(const RunSetup& setup, const Connect& connect) {
  if (!OneMeasuresForAll(setup)) return Communicators();
  return ConnectRanks(setup, connect, engine::MemoryKind::kDevice);
}

// The model that a rank computes and the data that it trains on.
struct Loaded {
  LoadedData data;
  std::unique_ptr<StepStrategy> strategy;
  int64_t planned_bytes = 0;
};

// Decides if the model is cut into stages; no other place asks this. Refuses what does not fit
// before it takes the memory.
absl::StatusOr<std::unique_ptr<StepStrategy>> CompileStep(const RunSetup& setup,
                                                          const std::string& choices) {
  return setup.place.stages > 1 ? PipelinedStep::Compile(setup, choices)
                                : WholeStep::Compile(setup, choices);
}

// Ranks with the same stage and type of GPU compile the same. Those without a GPU's name take the
// first one of their host. The name comes first, since it is at the end that long texts are cut.
MeasuredWork WorkOf(const RunSetup& setup) {
  return {.kind = absl::StrCat(setup.place.stage, " ", setup.mine().device_type),
          .device = absl::StrCat(setup.mine().device, " ", setup.assignment.worker)};
}

// In a gang of GPUs one rank of each kind measures, so that equal GPUs run equal kernels and nobody
// waits in a step for a rank that still measures. `host` is null if each rank is for itself.
absl::StatusOr<std::unique_ptr<StepStrategy>> CompileWithOthers(const RunSetup& setup,
                                                                parallel::Communicator* host) {
  if (host == nullptr) return CompileStep(setup, "");
  std::unique_ptr<StepStrategy> strategy;
  TY_RETURN_IF_ERROR(CompileInTurn(*host, WorkOf(setup),
                                   [&](const std::string& choices) -> absl::StatusOr<std::string> {
                                     TY_ASSIGN_OR_RETURN(strategy, CompileStep(setup, choices));
                                     return strategy->executable().MeasuredChoices();
                                   }));
  return strategy;
}

// Loads the data while the model is compiled, or while another rank measures for this one, and
// gives the images to the device if that pays off.
absl::StatusOr<Loaded> LoadAndCompile(const RunSetup& setup, parallel::Communicator* host) {
  auto loading = std::async(std::launch::async, LoadTrainData, setup.spec, setup.dataset_options,
                            setup.mine().threads);
  absl::StatusOr<std::unique_ptr<StepStrategy>> strategy = CompileWithOthers(setup, host);
  absl::StatusOr<LoadedData> data = loading.get();
  TY_RETURN_IF_ERROR(strategy.status());
  TY_RETURN_IF_ERROR(data.status());
  TY_RETURN_IF_ERROR(CheckData(setup.spec, *data->dataset));
  // The test split is loaded behind the first steps, but a job without one should make none.
  TY_RETURN_IF_ERROR(
      data::FindDataset(setup.spec.data().dataset(), data::Split::kTest, setup.dataset_options));
  engine::Executable& executable = (*strategy)->executable();
  const int64_t step_bytes = (*strategy)->model().planned_bytes;
  const int64_t before = executable.memory_plan().buffers();
  TY_RETURN_IF_ERROR(ChooseRowForm(*data->dataset, ImageBytesMax(setup.memory_bytes, step_bytes),
                                   executable, data->preparation));
  const int64_t image_bytes = executable.memory_plan().buffers() - before;
  return Loaded{.data = *std::move(data),
                .strategy = *std::move(strategy),
                .planned_bytes = step_bytes + image_bytes};
}

StepSequence SequenceOf(const RunSetup& setup, const data::Dataset& dataset) {
  return StepSequence({.dataset_size = dataset.size(),
                       .global_batch = setup.spec.train().global_batch(),
                       .epochs = setup.spec.train().epochs(),
                       .steps = setup.spec.train().steps(),
                       .replicas = setup.replicas,
                       .seed = setup.spec.train().seed()});
}

// Rank 0 gets the state to begin with; the others get it from rank 0 when all are connected.
absl::StatusOr<RestoredState> FillState(const ResumePoint& resume, const RunSetup& setup,
                                        StepStrategy& strategy) {
  if (setup.rank != 0) return RestoredState();
  return InitialiseOrRestore(resume, setup, strategy.whole_state());
}

RunIdentity IdentityOf(const RunSetup& setup, const Loaded& loaded, const RestoredState& start) {
  return {.seed = setup.spec.train().seed(),
          .replicas = setup.replicas,
          .global_batch = setup.spec.train().global_batch(),
          .data_digest = loaded.data.dataset->digest(),
          .model_digest = ModelDigest(loaded.strategy->whole_state()),
          .init_digest = start.init_digest,
          .spec_json = setup.assignment.spec_json,
          .is_bitwise = setup.is_bitwise};
}

// Ranks that were started with different specs, models or data must not train together. In a run
// that was started by hand, ranks could also decide differently about the precision.
absl::StatusOr<Gang> MeetGang(const RunSetup& setup, const RunIdentity& identity,
                              engine::Precision precision, Communicators lines) {
  parallel::Communicator& host = *lines.host;
  TY_RETURN_IF_ERROR(
      CheckAgreement(host, absl::StrCat(setup.assignment.spec_json, "\n", setup.world_size(), "\n",
                                        identity.model_digest, "\n", identity.data_digest, "\n",
                                        engine::PrecisionName(precision))));
  Gang gang;
  gang.lines = std::move(lines);
  TY_ASSIGN_OR_RETURN(gang.device_types, GatherNames(host, setup.mine().device_type));
  return gang;
}

absl::StatusOr<GangHosting> ChooseHosting(const Gang& gang, const ResumePoint& resume,
                                          StepStrategy& strategy) {
  const double mine[] = {static_cast<double>(strategy.replica_room())};
  TY_ASSIGN_OR_RETURN(const std::vector<double> all, GatherNumbers(*gang.lines.host, mine));
  return strategy.ChooseHosting(gang, std::vector<int>(all.begin(), all.end()),
                                resume.state.identity);
}

absl::StatusOr<int64_t> FirstStepOfRank0(int64_t mine, parallel::Communicator& host) {
  double step[] = {static_cast<double>(mine)};
  TY_RETURN_IF_ERROR(BroadcastNumbers(host, step));
  return static_cast<int64_t>(step[0]);
}

// Several pipelines, or several ranks with whole models, sum their gradients. One alone has nothing
// to sum.
absl::Status ConnectExchangeOf(const RunSetup& setup, const GangHosting& hosting,
                               StepStrategy& strategy, Gang& gang) {
  if (setup.place.pipelines == 1) return absl::OkStatus();
  TY_ASSIGN_OR_RETURN(StepExchange made,
                      ConnectExchange(setup, hosting.ranges, strategy, gang.lines));
  gang.exchange = std::move(made.exchange);
  gang.updates_ranges = made.updates_ranges;
  return absl::OkStatus();
}

// Ranks whose plans are in no cache compile for longer, and the others wait for them here rather
// than in the first step.
absl::Status CompileRowsTogether(const HostedShare& share, StepStrategy& strategy,
                                 parallel::Communicator& host) {
  TY_RETURN_IF_ERROR(
      strategy.executable().CompileRows(RowsOfParts(share.steps, strategy.model()), {}));
  host.set_timeout(StepPace::kCompileLimit);
  const double nothing[] = {0};
  TY_RETURN_IF_ERROR(GatherNumbers(host, nothing).status());
  host.set_timeout(StepPace::kFirstLimit);
  return absl::OkStatus();
}

// A training that is over before its first step would look like a success. The server can tell that
// at submission only where it knows the number of samples.
absl::Status CheckLength(const v1::JobSpec& spec, int64_t first_step, const StepSequence& steps) {
  const auto from = ParseCheckpointName(spec.from_checkpoint());
  if (!from.ok() || from->step != first_step || first_step < steps.total_steps()) {
    return absl::OkStatus();
  }
  return InvalidFields(
      {{spec.train().has_steps() ? "spec.train.steps" : "spec.train.epochs",
        absl::StrCat("asks for ", steps.total_steps(), " steps, and checkpoint '",
                     spec.from_checkpoint(), "' is at step ", first_step,
                     ": nothing is left to train; did you mean init: {job: ", from->job.value, "/",
                     from->step, "}, which begins a new training with its weights?")}});
}

}  // namespace

absl::StatusOr<PreparedRun> PrepareRun(const run_dir::RunDir& dir,
                                       const run_dir::Assignment& assignment, int rank,
                                       const Connect& connect, bool may_share_memory) {
  TY_ASSIGN_OR_RETURN(RunSetup setup, ReadRunSetup(dir, assignment, rank, may_share_memory));
  TY_ASSIGN_OR_RETURN(const ResumePoint resume, FindResumePoint(setup));
  TY_ASSIGN_OR_RETURN(Communicators lines, ConnectEarly(setup, connect));
  TY_ASSIGN_OR_RETURN(Loaded loaded, LoadAndCompile(setup, lines.host.get()));
  StepStrategy& strategy = *loaded.strategy;
  TY_ASSIGN_OR_RETURN(const RestoredState start, FillState(resume, setup, strategy));
  RunIdentity identity = IdentityOf(setup, loaded, start);

  if (lines.host == nullptr) {
    TY_ASSIGN_OR_RETURN(lines, ConnectRanks(setup, connect, strategy.executable().memory_kind()));
  }
  TY_ASSIGN_OR_RETURN(Gang gang,
                      MeetGang(setup, identity, strategy.model().precision, std::move(lines)));
  identity.device_types = gang.device_types;
  TY_ASSIGN_OR_RETURN(GangHosting hosting, ChooseHosting(gang, resume, strategy));
  TY_ASSIGN_OR_RETURN(const int64_t first_step, FirstStepOfRank0(start.step, *gang.lines.host));
  TY_RETURN_IF_ERROR(strategy.Join(gang.lines));
  TY_RETURN_IF_ERROR(ConnectExchangeOf(setup, hosting, strategy, gang));
  const StepSequence steps = SequenceOf(setup, *loaded.data.dataset);
  TY_RETURN_IF_ERROR(CheckLength(setup.spec, first_step, steps));
  TY_ASSIGN_OR_RETURN(HostedShare share, TakeShare(setup, hosting.ranges, steps,
                                                   strategy.executable(), gang.exchange.get()));
  TY_RETURN_IF_ERROR(CompileRowsTogether(share, strategy, *gang.lines.host));
  engine::Schedule schedule =
      MakeSchedule(setup.spec, steps.steps_per_epoch(), steps.total_steps());
  return PreparedRun{.setup = std::move(setup),
                     .data = std::move(loaded.data),
                     .strategy = std::move(loaded.strategy),
                     .gang = std::move(gang),
                     .hosting = std::move(hosting),
                     .share = std::move(share),
                     .schedule = std::move(schedule),
                     .identity = std::move(identity),
                     .planned_bytes = loaded.planned_bytes,
                     .first_step = first_step};
}

}  // namespace trainyard::trainer
