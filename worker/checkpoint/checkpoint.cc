// Writes and finds checkpoints. A checkpoint exists from the rename of its folder on: an
// interruption before that leaves a folder that does not count as a checkpoint.
#include "worker/checkpoint/checkpoint.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <set>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/check.h"
#include "common/base/checkpoint_file.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/hash.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"
#include "worker/checkpoint/manifest.h"

namespace trainyard::checkpoint {
namespace {

constexpr char kFolderPrefix[] = "step-";
constexpr char kTemporarySuffix[] = ".tmp";
// The files that may lie in the folder of a checkpoint with MANIFEST, and a few that should not.
constexpr size_t kListedMax = kCheckpointFilesMax + 100;

std::string FolderOf(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

// Returns the step of a folder named step-<n>, or nothing for other names, such as step-007 and
// step-7.tmp.
std::optional<int64_t> StepOf(absl::string_view folder) {
  int64_t step = 0;
  if (!absl::ConsumePrefix(&folder, kFolderPrefix) || !absl::SimpleAtoi(folder, &step) ||
      step < 0 || absl::StrCat(step) != folder) {
    return std::nullopt;
  }
  return step;
}

// Returns all steps that have a folder, whatever is in it, in ascending order.
std::vector<int64_t> FolderSteps(const std::string& checkpoints_dir) {
  std::vector<int64_t> steps;
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory(checkpoints_dir);
  if (!names.ok()) return steps;
  for (const std::string& name : *names) {
    if (const std::optional<int64_t> step = StepOf(name)) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

// Removes what crashed writers left. There is one writer at a time, so nobody is writing there now.
absl::Status RemoveTemporaryFolders(const std::string& checkpoints_dir) {
  TY_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(checkpoints_dir));
  for (absl::string_view name : names) {
    const std::string path = JoinPath(checkpoints_dir, name);
    if (absl::ConsumeSuffix(&name, kTemporarySuffix) && StepOf(name).has_value()) {
      TY_RETURN_IF_ERROR(RemoveTree(path));
    }
  }
  return absl::OkStatus();
}

absl::Status WriteSynced(const std::string& path, absl::string_view content) {
  TY_ASSIGN_OR_RETURN(const UniqueFd fd, OpenFile(path, O_WRONLY | O_CREAT | O_EXCL));
  TY_RETURN_IF_ERROR(WriteFully(fd.get(), content, path));
  // A failed fsync is final: the kernel may have dropped the pages, so another one would prove
  // nothing.
  if (fsync(fd.get()) != 0) return ErrnoStatus(errno, "cannot sync", path);
  return absl::OkStatus();
}

absl::Status MakeCheckpointsDir(const std::string& checkpoints_dir) {
  if (FileExists(checkpoints_dir)) return absl::OkStatus();
  TY_RETURN_IF_ERROR(MakeDirectories(checkpoints_dir));
  return SyncDirectory(FolderOf(checkpoints_dir));
}

// The first phase writes the files and then MANIFEST, each on disk before the next step.
absl::Status WriteFolder(const std::string& folder, int64_t step,
                         const std::vector<CheckpointFile>& files) {
  TY_RETURN_IF_ERROR(MakeDirectories(folder));
  Manifest manifest{step, {}};
  for (const CheckpointFile& file : files) {
    TY_RETURN_IF_ERROR(WriteSynced(JoinPath(folder, file.name), file.content));
    manifest.files.push_back(
        {file.name, static_cast<int64_t>(file.content.size()), ContentHash(file.content)});
  }
  std::sort(manifest.files.begin(), manifest.files.end(),
            [](const ManifestEntry& a, const ManifestEntry& b) { return a.name < b.name; });
  TY_RETURN_IF_ERROR(WriteSynced(JoinPath(folder, kManifestName), EncodeManifest(manifest)));
  return SyncDirectory(folder);
}

// Returns what MANIFEST says of a file that is there, after a sync of it.
absl::StatusOr<ManifestEntry> EntryOf(const std::string& folder, const std::string& name) {
  const std::string path = JoinPath(folder, name);
  const auto fd = OpenRegularFile(path, O_RDONLY);
  if (!IsCheckpointFileName(name) || !fd.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", PlainText(name, 200),
                     "' is no file with a plain name, and a checkpoint has only such files"));
  }
  if (fsync(fd->get()) != 0) return ErrnoStatus(errno, "cannot sync", path);
  TY_ASSIGN_OR_RETURN(const int64_t size, FileSize(path));
  TY_ASSIGN_OR_RETURN(std::string hash, RegularFileHash(path, size));
  return ManifestEntry{name, size, std::move(hash)};
}

// Writes MANIFEST beside the files, and makes sure that their names are on disk too.
absl::Status SealAdopted(const std::string& folder, const Manifest& manifest) {
  std::set<std::string> folders = {folder};
  for (const ManifestEntry& entry : manifest.files) {
    for (size_t at = entry.name.find('/'); at != std::string::npos;
         at = entry.name.find('/', at + 1)) {
      folders.insert(JoinPath(folder, entry.name.substr(0, at)));
    }
  }
  TY_RETURN_IF_ERROR(WriteSynced(JoinPath(folder, kManifestName), EncodeManifest(manifest)));
  for (const std::string& one : folders) TY_RETURN_IF_ERROR(SyncDirectory(one));
  return absl::OkStatus();
}

absl::Status VerifyFile(const std::string& folder, const ManifestEntry& entry) {
  const std::string path = JoinPath(folder, entry.name);
  const absl::StatusOr<int64_t> size = FileSize(path);
  if (absl::IsNotFound(size.status())) {
    return error::CorruptFile(path, "it is missing; MANIFEST lists it");
  }
  TY_RETURN_IF_ERROR(size.status());
  if (*size != entry.size) {
    return error::CorruptFile(path,
                              absl::StrCat("it has ", *size, " bytes; MANIFEST says ", entry.size));
  }
  TY_ASSIGN_OR_RETURN(const std::string hash, RegularFileHash(path, entry.size));
  if (hash != entry.hash) {
    return error::CorruptFile(path,
                              absl::StrCat("its hash is ", hash, "; MANIFEST says ", entry.hash));
  }
  return absl::OkStatus();
}

absl::Status VerifyNothingElse(const std::string& folder, const Manifest& manifest) {
  TY_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListTree(folder, kListedMax));
  for (const std::string& name : names) {
    const bool is_listed = std::any_of(manifest.files.begin(), manifest.files.end(),
                                       [&name](const auto& entry) { return entry.name == name; });
    if (!is_listed && name != kManifestName) {
      return error::CorruptFile(JoinPath(folder, name), "MANIFEST does not list it");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteCheckpoint(const std::string& checkpoints_dir, int64_t step,
                             const std::vector<CheckpointFile>& files) {
  TY_CHECK(step >= 0);
  for (const CheckpointFile& file : files) TY_CHECK(IsCheckpointFileName(file.name));
  TY_RETURN_IF_ERROR(MakeCheckpointsDir(checkpoints_dir));
  TY_RETURN_IF_ERROR(RemoveTemporaryFolders(checkpoints_dir));
  const std::string path = CheckpointPath(checkpoints_dir, step);
  const bool has_damaged = FileExists(path);
  if (has_damaged) {
    absl::Status verified = VerifyCheckpoint(path).status();
    // The writer of it may have died between the rename and this point.
    if (verified.ok()) return SyncDirectory(checkpoints_dir);
    if (!absl::IsDataLoss(verified)) return verified;
  }

  const std::string temporary = absl::StrCat(path, kTemporarySuffix);
  auto remove = absl::MakeCleanup([&temporary] { (void)RemoveTree(temporary); });
  TY_RETURN_IF_ERROR(WriteFolder(temporary, step, files));
  // The damaged one is removed only now, because until here it was still evidence.
  if (has_damaged) TY_RETURN_IF_ERROR(RemoveTree(path));
  if (rename(temporary.c_str(), path.c_str()) != 0) {
    return ErrnoStatus(errno, "cannot rename to", path);
  }
  std::move(remove).Cancel();
  return SyncDirectory(checkpoints_dir);
}

absl::Status AdoptCheckpoint(const std::string& checkpoints_dir, int64_t step,
                             const std::string& written) {
  TY_CHECK(step >= 0);
  TY_RETURN_IF_ERROR(MakeCheckpointsDir(checkpoints_dir));
  TY_RETURN_IF_ERROR(RemoveTemporaryFolders(checkpoints_dir));
  const std::string path = CheckpointPath(checkpoints_dir, step);
  if (FileExists(path)) {
    return absl::AlreadyExistsError(absl::StrCat("there is one of step ", step, " already"));
  }
  const std::filesystem::path source(written);
  std::error_code error;
  const bool is_folder =
      std::filesystem::is_directory(std::filesystem::symlink_status(source, error));
  std::vector<std::string> names = {source.filename().string()};
  if (is_folder) {
    TY_ASSIGN_OR_RETURN(names, ListTree(written, kCheckpointFilesMax));
    if (names.empty()) return absl::InvalidArgumentError("its folder is empty");
  }
  // Everything is looked at before anything is moved.
  Manifest manifest{step, {}};
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    TY_ASSIGN_OR_RETURN(ManifestEntry entry,
                        EntryOf(is_folder ? written : FolderOf(written), name));
    manifest.files.push_back(std::move(entry));
  }
  const std::string temporary = absl::StrCat(path, kTemporarySuffix);
  if (!is_folder) TY_RETURN_IF_ERROR(MakeDirectories(temporary));
  const std::string target = is_folder ? temporary : JoinPath(temporary, names.front());
  if (rename(written.c_str(), target.c_str()) != 0) {
    return ErrnoStatus(errno, "cannot rename to", target);
  }
  const absl::Status sealed = SealAdopted(temporary, manifest);
  if (!sealed.ok()) {
    // The disk may be full now and have room later, so nothing that was written is lost.
    (void)unlink(JoinPath(temporary, kManifestName).c_str());
    (void)rename(target.c_str(), written.c_str());
    return sealed;
  }
  if (rename(temporary.c_str(), path.c_str()) != 0) {
    return ErrnoStatus(errno, "cannot rename to", path);
  }
  return SyncDirectory(checkpoints_dir);
}

absl::StatusOr<Manifest> VerifyCheckpoint(const std::string& checkpoint_dir) {
  if (!FileExists(checkpoint_dir)) return error::CheckpointNotFound(checkpoint_dir);
  const std::string manifest_path = JoinPath(checkpoint_dir, kManifestName);
  absl::StatusOr<Manifest> manifest = ParseManifest(manifest_path);
  if (absl::IsNotFound(manifest.status())) {
    return error::CorruptFile(manifest_path, "it is missing, so the checkpoint is half-written");
  }
  TY_RETURN_IF_ERROR(manifest.status());
  const std::optional<int64_t> step =
      StepOf(std::filesystem::path(checkpoint_dir).filename().string());
  // A downloaded copy may have another name, but a folder that names another step was mixed up.
  if (step.has_value() && *step != manifest->step) {
    return error::CorruptFile(manifest_path, absl::StrCat("its step is ", manifest->step,
                                                          "; the folder's name says ", *step));
  }
  TY_RETURN_IF_ERROR(VerifyNothingElse(checkpoint_dir, *manifest));
  for (const ManifestEntry& entry : manifest->files) {
    TY_RETURN_IF_ERROR(VerifyFile(checkpoint_dir, entry));
  }
  return manifest;
}

std::vector<int64_t> ListCheckpoints(const std::string& checkpoints_dir) {
  std::vector<int64_t> steps = FolderSteps(checkpoints_dir);
  steps.erase(std::remove_if(steps.begin(), steps.end(),
                             [&checkpoints_dir](int64_t step) {
                               const std::string path =
                                   JoinPath(CheckpointPath(checkpoints_dir, step), kManifestName);
                               const absl::StatusOr<Manifest> manifest = ParseManifest(path);
                               return !manifest.ok() || manifest->step != step;
                             }),
              steps.end());
  return steps;
}

absl::StatusOr<LatestCheckpoint> FindLatestValid(const std::string& checkpoints_dir,
                                                 std::vector<std::string>& damaged) {
  const std::vector<int64_t> steps = FolderSteps(checkpoints_dir);
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    LatestCheckpoint latest{*step, CheckpointPath(checkpoints_dir, *step)};
    const absl::Status verified = VerifyCheckpoint(latest.path).status();
    if (verified.ok()) return latest;
    damaged.push_back(absl::StrCat(latest.path, ": ", verified.message()));
  }
  return error::CheckpointNotFound(JoinPath(checkpoints_dir, absl::StrCat(kFolderPrefix, "*")));
}

std::string CheckpointPath(const std::string& checkpoints_dir, int64_t step) {
  return JoinPath(checkpoints_dir, absl::StrCat(kFolderPrefix, step));
}

}  // namespace trainyard::checkpoint
