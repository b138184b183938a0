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
#include "common/base/status_macros.h"
#include "common/base/strings.h"

namespace trainyard::commands {
namespace {

// If a connection breaks more often than this within one file, the download fails.
constexpr int kTriesPerFile = 10;

bool IsWhole(const std::string& path, const v1::CheckpointFile& file) {
  const auto size = FileSize(path);
  if (!size.ok() || *size != file.size()) return false;
  const auto hash = FileHash(path);
  return hash.ok() && *hash == file.hash();
}

// Appends the stream to `path`, starting at the end of that file.
absl::Status FetchRest(link::ServerLink& link, const std::string& checkpoint,
                       const v1::CheckpointFile& file, const std::string& path) {
  TY_ASSIGN_OR_RETURN(const UniqueFd fd, OpenFile(path, O_WRONLY | O_CREAT | O_APPEND));
  TY_ASSIGN_OR_RETURN(int64_t size, FileSize(path));
  v1::DownloadCheckpointRequest request;
  request.set_name(checkpoint);
  request.set_file(file.name());
  request.set_offset(size);
  grpc::ClientContext call;
  const link::Interrupt::Scope scope(link.interrupt(), call);
  const auto reader = link.checkpoints().DownloadCheckpoint(&call, request);
  v1::DownloadCheckpointResponse chunk;
  absl::Status failed;
  while (failed.ok() && reader->Read(&chunk)) {
    if (chunk.offset() != size) {
      failed = error::OffsetMismatch(file.name(), chunk.offset(), size);
    } else {
      failed = WriteFully(fd.get(), chunk.data(), path);
      size += static_cast<int64_t>(chunk.data().size());
    }
  }
  if (!failed.ok()) call.TryCancel();
  const grpc::Status status = reader->Finish();
  TY_RETURN_IF_ERROR(failed);
  if (!status.ok()) return link.Error(status);
  if (fsync(fd.get()) != 0) return ErrnoStatus(errno, "cannot write", path);
  return absl::OkStatus();
}

// Downloads one file into `<name>.part`, and renames it once it is whole and its hash is right.
absl::Status FetchFile(const Context& context, link::ServerLink& link,
                       const std::string& checkpoint, const v1::CheckpointFile& file,
                       const std::string& directory) {
  const std::string path = JoinPath(directory, file.name());
  const std::string part = path + ".part";
  if (IsWhole(path, file)) {
    context.Say(absl::StrCat("  ", file.name(), "  is here already"));
    return absl::OkStatus();
  }
  absl::Status status;
  bool was_damaged = false;
  for (int i = 0; i < kTriesPerFile; ++i) {
    const auto size = FileSize(part);
    // A part that is longer than the file belongs to another checkpoint.
    if (size.ok() && *size > file.size()) unlink(part.c_str());
    status = FetchRest(link, checkpoint, file, part);
    if (status.ok() && IsWhole(part, file)) {
      if (rename(part.c_str(), path.c_str()) != 0) return ErrnoStatus(errno, "cannot rename", part);
      context.Say(absl::StrCat("  ", file.name(), "  ", FormatBytes(file.size())));
      return absl::OkStatus();
    }
    if (status.ok()) {
      // The part belonged to another checkpoint, or was damaged. The file is downloaded once more
      // from the start.
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

}  // namespace

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
  for (const v1::CheckpointFile& file : checkpoint.files()) {
    // We trust the server with content, but not with paths.
    if (!IsCheckpointFileName(file.name())) {
      return error::CorruptFile(checkpoint.name(),
                                absl::StrCat("'", file.name(), "' is not a plain file name"));
    }
    TY_RETURN_IF_ERROR(FetchFile(context, link, checkpoint.name(), file, directory));
  }
  // MANIFEST comes last: if it is there, the other files are complete.
  return WriteFileAtomically(manifest_path, manifest);
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
