// Downloads go into `<name>.part` first. So a folder never holds an incomplete file under its own
// name, and a broken download can be resumed.
#include "client/commands/checkpoint_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/checkpoint_file.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/hash.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"

namespace trainyard::commands {
namespace {

// If a connection breaks more often than this within one file, the download fails.
constexpr int kTriesPerFile = 10;

// The server reads all files of a checkpoint before it answers.
constexpr absl::Duration kServerVerifyTimeout = absl::Hours(1);

bool IsWhole(const std::string& path, const v1::CheckpointFile& file) {
  const auto size = FileSize(path);
  if (!size.ok() || *size != file.size()) return false;
  const auto hash = FileHash(path);
  return hash.ok() && *hash == file.hash();
}

// Appends the stream to `path`, starting at the end of that file.
absl::Status FetchRest(link::ServerLink& link, const OpenFileStream& open,
                       const v1::CheckpointFile& file, const std::string& path,
                       const std::function<void(int64_t bytes)>& on_bytes) {
  TY_ASSIGN_OR_RETURN(const UniqueFd fd, OpenFile(path, O_WRONLY | O_CREAT | O_APPEND));
  TY_ASSIGN_OR_RETURN(int64_t size, FileSize(path));
  grpc::ClientContext call;
  const link::Interrupt::Scope scope(link.interrupt(), call);
  const auto reader = open(&call, file.name(), size);
  v1::DownloadCheckpointResponse chunk;
  absl::Status failed;
  while (failed.ok() && reader->Read(&chunk)) {
    if (chunk.offset() != size) {
      failed = error::OffsetMismatch(file.name(), chunk.offset(), size);
    } else {
      failed = WriteFully(fd.get(), chunk.data(), path);
      size += static_cast<int64_t>(chunk.data().size());
      if (on_bytes) on_bytes(static_cast<int64_t>(chunk.data().size()));
    }
  }
  if (!failed.ok()) call.TryCancel();
  const grpc::Status status = reader->Finish();
  TY_RETURN_IF_ERROR(failed);
  if (!status.ok()) return link.Error(status);
  if (fsync(fd.get()) != 0) return ErrnoStatus(errno, "cannot write", path);
  return absl::OkStatus();
}

// The manifest must match docs/run_directory.md byte by byte, so that a trainer can start from the
// folder.
std::string Manifest(const v1::Checkpoint& checkpoint) {
  std::vector<v1::CheckpointFile> sorted(checkpoint.files().begin(), checkpoint.files().end());
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.name() < b.name(); });
  std::vector<std::string> files;
  files.reserve(sorted.size());
  for (const v1::CheckpointFile& file : sorted) {
    files.push_back(absl::StrCat("\n  {\"name\": ", JsonQuote(file.name()), ", \"size\": ",
                                 file.size(), ", \"hash\": ", JsonQuote(file.hash()), "}"));
  }
  return absl::StrCat("{\"format\": 1, \"step\": ", checkpoint.step(), ", \"files\": [",
                      absl::StrJoin(files, ","), "]}\n");
}

// Returns a clause that names what can be had instead of a damaged checkpoint.
absl::StatusOr<std::string> WholeOnes(link::ServerLink& link, const CheckpointId& damaged) {
  v1::ListCheckpointsRequest request;
  request.set_parent(JobName(damaged.job));
  TY_ASSIGN_OR_RETURN(const v1::ListCheckpointsResponse response,
                      link.Call(&v1::CheckpointService::Stub::ListCheckpoints, request));
  std::vector<std::string> whole;
  for (const v1::Checkpoint& checkpoint : response.checkpoints()) {
    const bool is_older = checkpoint.step() < damaged.step && checkpoint.damage().empty();
    if (is_older) whole.push_back(absl::StrCat(damaged.job.value, "/", checkpoint.step()));
  }
  if (whole.empty()) return "there is no older one that is whole";
  return absl::StrCat("older ones that are whole: ", absl::StrJoin(whole, ", "),
                      "; `trainyard checkpoints get ", whole.back(), "` downloads one");
}

}  // namespace

absl::Status FetchFile(const Context& context, link::ServerLink& link, const OpenFileStream& open,
                       const v1::CheckpointFile& file, const std::string& path,
                       const std::string& shown,
                       const std::function<void(int64_t bytes)>& on_bytes) {
  const std::string part = path + ".part";
  if (IsWhole(path, file)) {
    context.Say(absl::StrCat("  ", shown, "  is here already"));
    return absl::OkStatus();
  }
  if (const size_t folder = path.rfind('/'); folder != std::string::npos && folder > 0) {
    TY_RETURN_IF_ERROR(MakeDirectories(path.substr(0, folder)));
  }
  absl::Status status;
  bool was_damaged = false;
  for (int i = 0; i < kTriesPerFile; ++i) {
    const auto size = FileSize(part);
    // A part that is longer than the file belongs to another one of that name.
    if (size.ok() && *size > file.size()) unlink(part.c_str());
    status = FetchRest(link, open, file, part, on_bytes);
    if (status.ok() && IsWhole(part, file)) {
      if (rename(part.c_str(), path.c_str()) != 0) return ErrnoStatus(errno, "cannot rename", part);
      if (!on_bytes) context.Say(absl::StrCat("  ", shown, "  ", FormatBytes(file.size())));
      return absl::OkStatus();
    }
    if (status.ok()) {
      // The part belonged to another file of that name, or was damaged. The file is downloaded once
      // more from the start.
      unlink(part.c_str());
      status = error::CorruptFile(part, absl::StrCat("its hash is not ", file.hash()));
      if (std::exchange(was_damaged, true)) return status;
    } else if (status.code() != absl::StatusCode::kUnavailable) {
      return status;
    }
    if (context.interrupt.WaitFor(absl::Milliseconds(200))) {
      return absl::CancelledError("interrupted; the same command resumes the download");
    }
  }
  return status;
}

OpenFileStream FilesOf(link::ServerLink& link, const v1::Checkpoint& checkpoint) {
  return [&link, name = checkpoint.name()](grpc::ClientContext* call, const std::string& file,
                                           int64_t offset) {
    v1::DownloadCheckpointRequest request;
    request.set_name(name);
    request.set_file(file);
    request.set_offset(offset);
    return link.checkpoints().DownloadCheckpoint(call, request);
  };
}

absl::Status FetchCheckpoint(const Context& context, link::ServerLink& link,
                             const v1::Checkpoint& checkpoint, const std::string& directory) {
  TY_RETURN_IF_ERROR(MakeDirectories(directory));
  const std::string manifest = Manifest(checkpoint);
  const std::string manifest_path = JoinPath(directory, "MANIFEST");
  if (FileExists(manifest_path)) {
    TY_ASSIGN_OR_RETURN(const std::string known, ReadFile(manifest_path, 1 << 20));
    if (known != manifest) {
      return absl::AlreadyExistsError(absl::StrCat(
          "'", directory, "' holds another checkpoint; choose another folder with -O"));
    }
  }
  const OpenFileStream open = FilesOf(link, checkpoint);
  for (const v1::CheckpointFile& file : checkpoint.files()) {
    // We trust the server with content, but not with paths.
    if (!IsCheckpointFileName(file.name())) {
      return error::CorruptFile(checkpoint.name(),
                                absl::StrCat("'", file.name(), "' is not a plain file name"));
    }
    TY_RETURN_IF_ERROR(
        FetchFile(context, link, open, file, JoinPath(directory, file.name()), file.name()));
  }
  // MANIFEST comes last: if it is there, the other files are complete.
  return WriteFileAtomically(manifest_path, manifest);
}

absl::Status FetchWholeCheckpoint(const Context& context, link::ServerLink& link,
                                  const v1::Checkpoint& checkpoint, const std::string& directory) {
  absl::Status fetched;
  if (checkpoint.damage().empty()) {
    fetched = FetchCheckpoint(context, link, checkpoint, directory);
    if (!absl::IsDataLoss(fetched)) return fetched;
  }
  context.Say("the server checks its copy");
  v1::VerifyCheckpointRequest request;
  request.set_name(checkpoint.name());
  const absl::StatusOr<v1::Checkpoint> found =
      link.Call(&v1::CheckpointService::Stub::VerifyCheckpoint, request, kServerVerifyTimeout);
  if (absl::IsUnimplemented(found.status())) return fetched;  // the server is older
  TY_RETURN_IF_ERROR(found.status());
  if (found->damage().empty()) {
    // It was damaged on its way, or it has been healed since the server found the damage.
    return fetched.ok() ? FetchCheckpoint(context, link, *found, directory) : fetched;
  }
  TY_ASSIGN_OR_RETURN(const CheckpointId id, ParseCheckpointName(found->name()));
  TY_ASSIGN_OR_RETURN(const std::string instead, WholeOnes(link, id));
  return error::CheckpointDamaged(found->name(), found->damage(), instead);
}

absl::StatusOr<std::string> MakeTemporaryDirectory() {
  std::error_code failed;
  const std::filesystem::path parent = std::filesystem::temp_directory_path(failed);
  if (failed) return absl::UnavailableError("there is no folder for temporary files");
  std::string path = (parent / "trainyard-XXXXXX").string();
  if (mkdtemp(path.data()) == nullptr) return ErrnoStatus(errno, "cannot make a folder as", path);
  return path;
}

}  // namespace trainyard::commands
