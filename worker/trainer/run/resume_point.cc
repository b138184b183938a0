// Skips damaged checkpoints, because an older valid one is worth more than an error.
#include "worker/trainer/run/resume_point.h"

#include <filesystem>
#include <optional>
#include <vector>

#include "common/base/errors.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/engine/models/models.h"
#include "worker/trainer/run/initial_weights.h"

namespace trainyard::trainer {
namespace {

// Returns nothing if `folder` has no valid checkpoint.
std::optional<checkpoint::LatestCheckpoint> NewestValid(const std::string& folder) {
  std::vector<std::string> damaged;
  const auto latest = checkpoint::FindLatestValid(folder, damaged);
  for (const std::string& what : damaged) {
    LogWarning("skipped a damaged checkpoint", {{"checkpoint", what}});
  }
  return latest.ok() ? std::make_optional(*latest) : std::nullopt;
}

// Returns the error of a run that has no valid checkpoint to resume from. The copy was whole when
// it came to this host, so if it is damaged now, that is the host's failure and no user's: the next
// attempt gets another copy.
absl::Status NothingToResume(const absl::Status& damage) {
  absl::Status failed = Annotate(damage, "cannot resume, and there is no other checkpoint");
  if (!absl::IsDataLoss(failed)) return failed;
  return MakeError(absl::StatusCode::kUnavailable, ErrorReason(failed), failed.message());
}

// Chooses the newer one of this run's own newest checkpoint and of the one that it was told to
// resume from. If the latter is damaged, the newest valid one beside it takes its place.
absl::StatusOr<std::optional<checkpoint::LatestCheckpoint>> NewestCheckpoint(
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
      return NothingToResume(manifest.status());
    }
  }
  const bool own_is_newer = own.has_value() && (!told.has_value() || own->step > told->step);
  return own_is_newer ? own : told;
}

}  // namespace

absl::StatusOr<ResumePoint> FindResumePoint(const RunSetup& setup) {
  ResumePoint resume;
  if (setup.rank != 0) return resume;
  TY_ASSIGN_OR_RETURN(const auto point,
                      NewestCheckpoint(setup.run_dir, setup.assignment.resume_from));
  if (!point.has_value()) return resume;
  LogInfo("resuming", {{"checkpoint", point->path}});
  resume.path = point->path;
  TY_ASSIGN_OR_RETURN(resume.state, ReadState(StatePath(point->path)));
  return resume;
}

absl::StatusOr<RestoredState> InitialiseOrRestore(const ResumePoint& resume, const RunSetup& setup,
                                                  engine::ModelState& state) {
  if (!resume.path.empty()) return RestoreState(resume.path, state);
  RestoredState restored;
  TY_RETURN_IF_ERROR(engine::InitializeParameters(setup.spec.train().seed(), state));
  if (setup.spec.has_init()) {
    InitFolders folders{.datasets = setup.assignment.dataset_dir};
    if (!setup.assignment.init_from.empty()) {
      folders.checkpoint = setup.run_dir.Resolve(setup.assignment.init_from);
    }
    TY_ASSIGN_OR_RETURN(restored.init_digest,
                        LoadInitialWeights(setup.spec.init(), folders, state));
  }
  return restored;
}

}  // namespace trainyard::trainer
