#include "worker/trainer/training.h"

#include <filesystem>
#include <future>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/errors.h"
#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/engine/models/models.h"
#include "worker/parallel/replicas.h"
#include "worker/trainer/data_setup.h"
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

// Rank 0 fills its executable: from the newest checkpoint, or from the seed and, where the spec
// says so, from a file. A run that goes on has its own weights and reads that file no more.
absl::StatusOr<RestoredState> InitialiseOrRestore(const run_dir::RunDir& dir,
                                                  const run_dir::Assignment& assignment,
                                                  const run_dir::TrainingSpec& spec,
                                                  engine::Executable& executable) {
  TY_ASSIGN_OR_RETURN(const auto point, FindResumePoint(dir, assignment.resume_from));
  if (point.has_value()) {
    LogInfo("resuming", {{"checkpoint", point->path}});
    return RestoreState(point->path, executable);
  }
  RestoredState state;
  TY_RETURN_IF_ERROR(engine::InitializeParameters(spec.train.seed, executable));
  if (!spec.init.checkpoint.empty()) {
    TY_ASSIGN_OR_RETURN(state.init_digest,
                        LoadInitialWeights(spec.init, assignment.dataset_dir, executable));
  }
  return state;
}

// Refuses what does not fit before it takes the memory.
absl::StatusOr<CompiledModel> CompileWhatFits(const run_dir::TrainingSpec& spec,
                                              const run_dir::Assignment& assignment, int rank) {
  const CompileTarget target = {.backend = assignment.backend,
                                .rank = rank,
                                .world_size = assignment.world_size,
                                .threads = assignment.FindRank(rank)->threads};
  TY_ASSIGN_OR_RETURN(const engine::CompilePlan plan, PlanRank(spec, target));
  TY_RETURN_IF_ERROR(CheckMemory(spec, target, plan.memory, MemoryOfRank(assignment, rank)));
  TY_ASSIGN_OR_RETURN(CompiledModel model, CompileModel(spec, target));
  model.planned_bytes = plan.memory.total();
  return model;
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

// A float holds integers of 24 bits exactly: a text goes as its bytes, a step as three of 20 bits.
constexpr int kStepParts = 3;
constexpr int kStepPartBits = 20;

absl::Status CheckAgreement(parallel::Communicator& communicator, const std::string& facts) {
  const std::string hash = ContentHash(facts);
  std::vector<float> mine(hash.begin(), hash.end());
  std::vector<float> of_rank_0 = mine;
  TY_RETURN_IF_ERROR(communicator.Broadcast(absl::MakeSpan(of_rank_0), 0));
  if (mine == of_rank_0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("rank ", communicator.rank(),
                   " has another spec, model or data set than rank 0; all hosts need the same"));
}

absl::StatusOr<int64_t> BroadcastState(parallel::Communicator& communicator, int64_t step,
                                       engine::Executable& executable) {
  std::vector<float> parts(kStepParts);
  for (int i = 0; i < kStepParts; ++i) {
    parts[static_cast<size_t>(i)] =
        static_cast<float>((step >> (i * kStepPartBits)) & ((int64_t{1} << kStepPartBits) - 1));
  }
  TY_RETURN_IF_ERROR(communicator.Broadcast(absl::MakeSpan(parts), 0));
  int64_t agreed = 0;
  for (int i = 0; i < kStepParts; ++i) {
    agreed |= static_cast<int64_t>(parts[static_cast<size_t>(i)]) << (i * kStepPartBits);
  }
  for (size_t i = 0; i < executable.state().size(); ++i) {
    std::vector<float> values(
        static_cast<size_t>(engine::ElementCount(executable.state()[i].shape)));
    TY_RETURN_IF_ERROR(executable.ReadState(i, absl::MakeSpan(values)));
    TY_RETURN_IF_ERROR(communicator.Broadcast(absl::MakeSpan(values), 0));
    TY_RETURN_IF_ERROR(executable.WriteState(i, values));
  }
  return agreed;
}

}  // namespace

absl::StatusOr<Training> PrepareTraining(const run_dir::RunDir& dir,
                                         const run_dir::Assignment& assignment, int rank,
                                         const Connect& connect) {
  Training training;
  training.run_dir = dir;
  training.rank = rank;
  TY_ASSIGN_OR_RETURN(training.spec, run_dir::ParseTrainingSpec(assignment.spec_json));
  const run_dir::TrainingSpec& spec = training.spec;
  const int world_size = assignment.world_size;
  const int replicas = ReplicaCount(spec.train, world_size);
  TY_ASSIGN_OR_RETURN(const parallel::ReplicaRange hosted,
                      parallel::HostedReplicas(replicas, rank, world_size));

  training.dataset_options = MakeDatasetOptions(spec, assignment.dataset_dir);
  auto loading = std::async(std::launch::async, LoadTrainData, spec, training.dataset_options,
                            assignment.FindRank(rank)->threads);
  absl::StatusOr<CompiledModel> model = CompileWhatFits(spec, assignment, rank);
  absl::StatusOr<LoadedData> loaded = loading.get();
  TY_RETURN_IF_ERROR(model.status());
  TY_RETURN_IF_ERROR(loaded.status());
  TY_RETURN_IF_ERROR(CheckData(spec, *loaded->dataset));

  training.executable = std::move(model->executable);
  training.planned_bytes = model->planned_bytes;
  training.max_rows = model->max_rows;
  training.computes_replicas_alone = model->couples_rows;
  training.train_data = std::move(loaded->dataset);
  training.preparation = std::move(loaded->preparation);
  TY_RETURN_IF_ERROR(StoreTrainData(assignment, training));
  training.plan = StepPlan({.dataset_size = training.train_data->size(),
                            .global_batch = spec.train.global_batch,
                            .epochs = spec.train.epochs,
                            .steps = spec.train.steps,
                            .replicas = replicas,
                            .hosted = hosted,
                            .seed = spec.train.seed});
  training.schedule =
      MakeSchedule(spec, training.plan.steps_per_epoch(), training.plan.total_steps());
  training.identity = {.seed = spec.train.seed,
                       .replicas = replicas,
                       .global_batch = spec.train.global_batch,
                       .data_digest = training.train_data->digest(),
                       .model_digest = ModelDigest(*training.executable),
                       .spec_json = assignment.spec_json};
  training.backend = assignment.backend;
  training.threads = assignment.FindRank(rank)->threads;

  if (rank == 0) {
    TY_ASSIGN_OR_RETURN(const RestoredState start,
                        InitialiseOrRestore(dir, assignment, spec, *training.executable));
    training.first_step = start.step;
    training.identity.init_digest = start.init_digest;
  }
  const engine::MemoryKind arena = training.executable->memory_kind();
  TY_ASSIGN_OR_RETURN(training.communicators, connect(assignment, arena));
  if (world_size > 1 && arena == engine::MemoryKind::kDevice) {
    TY_CHECK(training.communicators.device != nullptr);
  }
  TY_RETURN_IF_ERROR(CheckAgreement(
      *training.communicators.host,
      absl::StrCat(assignment.spec_json, "\n", world_size, "\n", training.identity.model_digest,
                   "\n", training.identity.data_digest)));
  TY_ASSIGN_OR_RETURN(
      training.first_step,
      BroadcastState(*training.communicators.host, training.first_step, *training.executable));
  if (world_size > 1) TY_RETURN_IF_ERROR(ConnectExchange(training));
  return training;
}

}  // namespace trainyard::trainer
