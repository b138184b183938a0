#include "worker/trainer/training.h"

#include <algorithm>
#include <filesystem>
#include <future>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/errors.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/engine/models/models.h"
#include "worker/parallel/replicas.h"
#include "worker/trainer/agreement.h"
#include "worker/trainer/data_setup.h"
#include "worker/trainer/hosting_plan.h"
#include "worker/trainer/initial_weights.h"
#include "worker/trainer/memory.h"
#include "worker/trainer/model_setup.h"
#include "worker/trainer/row_form.h"
#include "worker/trainer/step_exchange.h"

namespace trainyard::trainer {
namespace {

// The newest valid checkpoint of `folder`; nothing where there is none.
std::optional<checkpoint::LatestCheckpoint> NewestValid(const std::string& folder) {
  std::vector<std::string> damaged;
  const auto latest = checkpoint::FindLatestValid(folder, damaged);
  for (const std::string& what : damaged) {
    LogWarning("passed over a damaged checkpoint", {{"checkpoint", what}});
  }
  return latest.ok() ? std::make_optional(*latest) : std::nullopt;
}

// Where to go on: the newest of this run's own checkpoints and the one that it was told to resume
// from, or, where that is damaged, the newest valid one beside it.
absl::StatusOr<std::optional<checkpoint::LatestCheckpoint>> FindResumePoint(
    const run_dir::RunDir& dir, const std::string& resume_from) {
  std::optional<checkpoint::LatestCheckpoint> own = NewestValid(dir.CheckpointsDir());
  if (resume_from.empty()) return own;
  const std::string path = dir.Resolve(resume_from);
  std::optional<checkpoint::LatestCheckpoint> told;
  const auto manifest = checkpoint::VerifyCheckpoint(path);
  if (manifest.ok()) {
    told = {.step = manifest->step, .path = path};
  } else {
    LogWarning("the checkpoint to resume from is not valid",
               {{"error", std::string(manifest.status().message())}});
    told = NewestValid(std::filesystem::path(path).parent_path().string());
    if (!told.has_value() && !own.has_value()) {
      return Annotate(manifest.status(), "cannot resume, and there is no other checkpoint");
    }
  }
  const bool own_is_newer = own.has_value() && (!told.has_value() || own->step > told->step);
  return own_is_newer ? own : told;
}

// What rank 0 goes on from; of other ranks, and of a run that starts anew, nothing.
struct ResumePoint {
  std::string path;  // empty: nothing
  StateRecord state;
};

absl::StatusOr<ResumePoint> ReadResumePoint(const run_dir::RunDir& dir,
                                            const std::string& resume_from, int rank) {
  ResumePoint resume;
  if (rank != 0) return resume;
  TY_ASSIGN_OR_RETURN(const auto point, FindResumePoint(dir, resume_from));
  if (!point.has_value()) return resume;
  LogInfo("resuming", {{"checkpoint", point->path}});
  resume.path = point->path;
  TY_ASSIGN_OR_RETURN(resume.state, ReadState(StatePath(point->path)));
  return resume;
}

// Rank 0 fills its executable: from the newest checkpoint, or from the seed and, where the spec
// says so, from a file. A run that goes on has its own weights and reads that file no more.
absl::StatusOr<RestoredState> InitialiseOrRestore(const ResumePoint& resume,
                                                  const run_dir::Assignment& assignment,
                                                  const run_dir::TrainingSpec& spec,
                                                  engine::ModelState& executable) {
  if (!resume.path.empty()) return RestoreState(resume.path, executable);
  RestoredState state;
  TY_RETURN_IF_ERROR(engine::InitializeParameters(spec.train.seed, executable));
  if (!spec.init.checkpoint.empty()) {
    TY_ASSIGN_OR_RETURN(state.init_digest,
                        LoadInitialWeights(spec.init, assignment.dataset_dir, executable));
  }
  return state;
}

// Refuses what does not fit before it takes the memory.
absl::Status CompileWhatFits(const run_dir::Assignment& assignment, bool shares_memory,
                             Training& training) {
  const run_dir::TrainingSpec& spec = training.spec;
  CompileTarget target = {.backend = assignment.backend,
                          .rank = training.rank,
                          .world_size = assignment.world_size,
                          .threads = training.threads,
                          .shares_memory = shares_memory};
  const int64_t limit = MemoryOfRank(assignment, training.rank);
  TY_ASSIGN_OR_RETURN(target.replicas_at_once, ReplicasAtOnce(spec, target, limit));
  TY_ASSIGN_OR_RETURN(const engine::CompilePlan plan, PlanRank(spec, target));
  TY_RETURN_IF_ERROR(CheckMemory(spec, target, plan.memory, limit));
  TY_ASSIGN_OR_RETURN(const int room, ReplicasThatFit(spec, target, plan.memory, limit));
  const auto line = std::make_shared<StatisticsLine>();
  if (assignment.world_size > 1) {
    target.sum_statistics = [line](absl::Span<double> values) { return line->Sum(values); };
  }
  TY_ASSIGN_OR_RETURN(CompiledModel model, CompileModel(spec, target));
  if (model.syncs_statistics) training.statistics = line;
  training.replica_room = {room};  // the others' are not known yet
  training.planned_bytes = plan.memory.total();
  training.executable = std::move(model.executable);
  training.max_rows = model.max_rows;
  training.max_groups = model.max_groups;
  training.evaluation_rows = model.evaluation_rows;
  training.ready_ends = std::move(model.ready_ends);
  training.computes_replicas_alone = model.computes_replicas_alone;
  return absl::OkStatus();
}

// The bits of a kernel's sums may depend on its number of threads, so a bitwise run has one for
// all its ranks and attempts: what its first gang could do alike.
absl::StatusOr<int> AgreeOnThreads(parallel::Communicator& communicator, int threads,
                                   int recorded) {
  const double mine[] = {static_cast<double>(threads), static_cast<double>(recorded)};
  TY_ASSIGN_OR_RETURN(const std::vector<double> all, GatherNumbers(communicator, mine));
  if (all[1] > 0) return static_cast<int>(all[1]);
  double least = all[0];
  for (size_t rank = 0; rank < all.size(); rank += std::size(mine)) {
    least = std::min(least, all[rank]);
  }
  return static_cast<int>(least);
}

// Gives the images to the device, where that pays.
absl::Status StoreTrainData(const run_dir::Assignment& assignment, Training& training) {
  engine::Executable& executable = *training.executable;
  const int64_t before = executable.memory_plan().buffers();
  const int64_t bytes_max =
      ImageBytesMax(MemoryOfRank(assignment, training.rank), training.planned_bytes);
  TY_RETURN_IF_ERROR(
      ChooseRowForm(*training.train_data, bytes_max, executable, training.preparation));
  training.planned_bytes += executable.memory_plan().buffers() - before;
  return absl::OkStatus();
}

absl::Status ConnectRanks(const run_dir::Assignment& assignment, engine::MemoryKind arena,
                          const Connect& connect, Training& training) {
  TY_ASSIGN_OR_RETURN(training.communicators, connect(assignment, arena));
  TY_CHECK(assignment.world_size == 1 || arena == engine::MemoryKind::kHost ||
           training.communicators.make_device_exchange != nullptr);
  return absl::OkStatus();
}

// What initialisation and checkpoints see: the state of the whole model.
engine::ModelState& StateOf(Training& training) {
  return training.pipeline.has_value() ? *training.pipeline->whole : *training.executable;
}

// Loads the data while the model is compiled.
absl::Status LoadAndCompile(const run_dir::Assignment& assignment, bool shares_memory,
                            Training& training) {
  const run_dir::TrainingSpec& spec = training.spec;
  auto loading = std::async(std::launch::async, LoadTrainData, spec, training.dataset_options,
                            assignment.FindRank(training.rank)->threads);
  const absl::Status compiled = spec.stages.count > 1
                                    ? CompileStage(assignment, shares_memory, training)
                                    : CompileWhatFits(assignment, shares_memory, training);
  absl::StatusOr<LoadedData> loaded = loading.get();
  TY_RETURN_IF_ERROR(compiled);
  TY_RETURN_IF_ERROR(loaded.status());
  TY_RETURN_IF_ERROR(CheckData(spec, *loaded->dataset));
  training.train_data = std::move(loaded->dataset);
  training.preparation = std::move(loaded->preparation);
  TY_RETURN_IF_ERROR(StoreTrainData(assignment, training));
  training.plan = StepPlan({.dataset_size = training.train_data->size(),
                            .global_batch = spec.train.global_batch,
                            .epochs = spec.train.epochs,
                            .steps = spec.train.steps,
                            .replicas = training.identity.replicas,
                            .seed = spec.train.seed});
  training.schedule =
      MakeSchedule(spec, training.plan.steps_per_epoch(), training.plan.total_steps());
  training.identity.data_digest = training.train_data->digest();
  training.identity.model_digest = ModelDigest(StateOf(training));
  return absl::OkStatus();
}

// The hosting that was measured before on the same devices, or an even one.
absl::StatusOr<parallel::Hosting> ChooseHosting(const ResumePoint& resume, Training& training) {
  const int replicas = training.identity.replicas;
  const auto ranks = training.identity.device_types.size();
  std::vector<double> counts(ranks, 0);
  const RunIdentity& before = resume.state.identity;
  if (before.hosting.size() == ranks && before.device_types == training.identity.device_types) {
    counts.assign(before.hosting.begin(), before.hosting.end());
  }
  TY_RETURN_IF_ERROR(BroadcastNumbers(*training.communicators.host, absl::MakeSpan(counts)));
  parallel::Hosting hosting;
  int begin = 0;
  bool is_possible = training.statistics == nullptr;  // else all rows of a rank are one batch
  for (size_t rank = 0; rank < ranks; ++rank) {
    const int count = static_cast<int>(counts[rank]);
    is_possible &= count >= 1 && count <= training.replica_room[rank];
    hosting.push_back({begin, begin + count});
    begin += count;
  }
  TY_ASSIGN_OR_RETURN(parallel::Hosting even,
                      parallel::EvenHosting(replicas, static_cast<int>(ranks)));
  if (!is_possible || begin != replicas || hosting == even) {
    training.hosting_reason =
        ranks == 1 ? "one rank computes all" : "even: no speeds were measured yet";
    return even;
  }
  training.hosting_reason = "as before, on devices of the same types";
  return hosting;
}

// All ranks get rank 0's weights, and where it stands.
absl::Status JoinGang(const run_dir::Assignment& assignment, const ResumePoint& resume,
                      Training& training) {
  parallel::Communicator& host = *training.communicators.host;
  TY_RETURN_IF_ERROR(CheckAgreement(
      host, absl::StrCat(assignment.spec_json, "\n", assignment.world_size, "\n",
                         training.identity.model_digest, "\n", training.identity.data_digest)));
  const bool is_pipeline = training.pipeline.has_value();
  TY_ASSIGN_OR_RETURN(training.identity.device_types,
                      GatherNames(host, assignment.FindRank(training.rank)->device_type));
  const double room[] = {static_cast<double>(training.replica_room[0])};
  TY_ASSIGN_OR_RETURN(const std::vector<double> rooms, GatherNumbers(host, room));
  training.replica_room.assign(rooms.begin(), rooms.end());
  parallel::Hosting hosting;
  if (is_pipeline) {
    const int pipelines = assignment.world_size / training.spec.stages.count;
    TY_ASSIGN_OR_RETURN(hosting, parallel::EvenHosting(training.identity.replicas, pipelines));
    training.hosting_reason =
        pipelines == 1 ? "one pipeline computes all" : "even: pipelines do not change theirs";
  } else {
    TY_ASSIGN_OR_RETURN(hosting, ChooseHosting(resume, training));
  }
  double step[] = {static_cast<double>(training.first_step)};
  TY_RETURN_IF_ERROR(BroadcastNumbers(host, step));
  training.first_step = static_cast<int64_t>(step[0]);
  if (is_pipeline) {
    TY_RETURN_IF_ERROR(JoinPipeline(training));
    if (hosting.size() > 1) TY_RETURN_IF_ERROR(ConnectExchange(hosting, training));
    return SetHosting(training, hosting);
  }
  TY_RETURN_IF_ERROR(BroadcastState(host, *training.executable));
  if (assignment.world_size > 1) TY_RETURN_IF_ERROR(ConnectExchange(hosting, training));
  if (training.statistics != nullptr) {
    TY_ASSIGN_OR_RETURN(training.statistics->communicator,
                        training.communicators.connect_group(AllRanks("batch_norm", hosting)));
  }
  return SetHosting(training, hosting);
}

}  // namespace

absl::Status StatisticsLine::Sum(absl::Span<double> values) {
  TY_ASSIGN_OR_RETURN(const std::vector<double> all, GatherNumbers(*communicator, values));
  std::copy_n(all.begin(), values.size(), values.begin());
  for (size_t i = values.size(); i < all.size(); ++i) values[i % values.size()] += all[i];
  return absl::OkStatus();
}

absl::StatusOr<Training> PrepareTraining(const run_dir::RunDir& dir,
                                         const run_dir::Assignment& assignment, int rank,
                                         const Connect& connect, bool shares_memory) {
  Training training;
  training.run_dir = dir;
  training.rank = rank;
  TY_ASSIGN_OR_RETURN(training.spec, run_dir::ParseTrainingSpec(assignment.spec_json));
  const run_dir::TrainingSpec& spec = training.spec;
  const int stages = spec.stages.count;
  if (assignment.world_size % stages != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        assignment.world_size, " ranks; expected a multiple of the ", stages, " stages"));
  }
  const int hosts = assignment.world_size / stages;
  const int replicas = ReplicaCount(spec.train, hosts);
  TY_RETURN_IF_ERROR(parallel::HostedReplicas(replicas, rank / stages, hosts).status());
  training.dataset_options = MakeDatasetOptions(spec, assignment.dataset_dir);
  training.identity = {.seed = spec.train.seed,
                       .replicas = replicas,
                       .global_batch = spec.train.global_batch,
                       .spec_json = assignment.spec_json,
                       .is_bitwise = spec.train.is_bitwise};
  training.backend = assignment.backend;
  training.device = assignment.FindRank(rank)->device;
  training.threads = assignment.FindRank(rank)->threads;
  TY_ASSIGN_OR_RETURN(const ResumePoint resume, ReadResumePoint(dir, assignment.resume_from, rank));

  if (spec.train.is_bitwise) {
    // Before anything is compiled, which depends on what the ranks agree on.
    const bool is_device = assignment.backend == kCudaBackend;
    TY_RETURN_IF_ERROR(ConnectRanks(
        assignment, is_device ? engine::MemoryKind::kDevice : engine::MemoryKind::kHost, connect,
        training));
    TY_ASSIGN_OR_RETURN(training.threads,
                        AgreeOnThreads(*training.communicators.host, training.threads,
                                       resume.state.identity.threads));
    training.identity.threads = training.threads;
  }
  const bool is_one_host = static_cast<int>(assignment.ranks.size()) == assignment.world_size;
  TY_RETURN_IF_ERROR(LoadAndCompile(
      assignment, shares_memory && is_one_host && assignment.world_size > 1, training));
  if (rank == 0) {
    TY_ASSIGN_OR_RETURN(const RestoredState start,
                        InitialiseOrRestore(resume, assignment, spec, StateOf(training)));
    training.first_step = start.step;
    training.identity.init_digest = start.init_digest;
  }
  if (training.communicators.host == nullptr) {
    TY_RETURN_IF_ERROR(
        ConnectRanks(assignment, training.executable->memory_kind(), connect, training));
  }
  TY_RETURN_IF_ERROR(JoinGang(assignment, resume, training));
  return training;
}

}  // namespace trainyard::trainer
