#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <ostream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/commands/commands.h"
#include "client/commands/selector.h"
#include "client/output/table.h"
#include "client/output/text.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/hash.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"

namespace trainyard::commands {
namespace {

// A connection that breaks more often than this within one file is of no use.
constexpr int kTriesPerFile = 10;

int64_t TotalSize(const v1::Checkpoint& checkpoint) {
  int64_t total = 0;
  for (const v1::CheckpointFile& file : checkpoint.files()) total += file.size();
  return total;
}

std::string AccuracyText(const v1::Checkpoint& checkpoint) {
  const auto accuracy = checkpoint.metrics().find("test.accuracy");
  return accuracy == checkpoint.metrics().end() ? "" : output::PercentText(accuracy->second);
}

// A name that stays in the folder. The server is trusted with content, not with paths.
bool IsFileName(const std::string& name) {
  return !name.empty() && name.front() != '.' && name.size() <= 255 && name != "MANIFEST" &&
         name.find('/') == std::string::npos && name.find('\0') == std::string::npos;
}

bool IsWhole(const std::string& path, const v1::CheckpointFile& file) {
  const auto size = FileSize(path);
  if (!size.ok() || *size != file.size()) return false;
  const auto hash = FileHash(path);
  return hash.ok() && *hash == file.hash();
}

// Appends from the end of `path` until the stream ends.
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

// One file, in `<name>.part` until it is whole and its hash is right.
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
    // Longer than the file: of something else.
    if (size.ok() && *size > file.size()) unlink(part.c_str());
    status = FetchRest(link, checkpoint, file, part);
    if (status.ok() && IsWhole(part, file)) {
      if (rename(part.c_str(), path.c_str()) != 0) return ErrnoStatus(errno, "cannot rename", part);
      context.Say(absl::StrCat("  ", file.name(), "  ", FormatBytes(file.size())));
      return absl::OkStatus();
    }
    if (status.ok()) {
      // The begun file was not of this checkpoint, or was damaged: once more from the start.
      unlink(part.c_str());
      status = error::CorruptFile(part, absl::StrCat("its hash is not ", file.hash()));
      if (std::exchange(was_damaged, true)) return status;
    } else if (status.code() != absl::StatusCode::kUnavailable) {
      return status;
    }
    if (context.interrupt.WaitFor(absl::Milliseconds(200))) {
      return absl::CancelledError("interrupted; the same command goes on where it stopped");
    }
  }
  return status;
}

// The spelling of docs/run_directory.md, byte by byte: the folder is then a checkpoint that a
// trainer starts from.
std::string Manifest(const v1::Checkpoint& checkpoint) {
  std::vector<v1::CheckpointFile> sorted(checkpoint.files().begin(), checkpoint.files().end());
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.name() < b.name(); });
  std::vector<std::string> files;
  for (const v1::CheckpointFile& file : sorted) {
    files.push_back(absl::StrCat("\n  {\"name\": ", JsonQuote(file.name()), ", \"size\": ",
                                 file.size(), ", \"hash\": ", JsonQuote(file.hash()), "}"));
  }
  return absl::StrCat("{\"format\": 1, \"step\": ", checkpoint.step(), ", \"files\": [",
                      absl::StrJoin(files, ","), "]}\n");
}

}  // namespace

Result ListCheckpoints(const Context& context) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  v1::ListCheckpointsRequest request;
  TY_ASSIGN_OR_RETURN(*request.mutable_parent(), ResolveOne(*link, context.options.selectors[0]));
  TY_ASSIGN_OR_RETURN(const v1::ListCheckpointsResponse response,
                      link->Call(&v1::CheckpointService::Stub::ListCheckpoints, request));
  if (PrintResources(context, response.checkpoints())) return link::kOk;
  if (response.checkpoints().empty()) {
    context.Say(absl::StrCat(request.parent(), " has no checkpoint yet"));
    return link::kOk;
  }
  using output::Table;
  Table table({{"CHECKPOINT"},
               {"STEP", Table::Align::kRight},
               {"ATTEMPT", Table::Align::kRight},
               {"SIZE", Table::Align::kRight},
               {"ACCURACY", Table::Align::kRight},
               {"CREATED (UTC)"}});
  for (const v1::Checkpoint& checkpoint : response.checkpoints()) {
    table.AddRow({checkpoint.name(), absl::StrCat(checkpoint.step()),
                  absl::StrCat(checkpoint.attempt()), FormatBytes(TotalSize(checkpoint)),
                  AccuracyText(checkpoint), output::TimeText(checkpoint.create_time())});
  }
  context.out << table.Render();
  return link::kOk;
}

Result GetCheckpoint(const Context& context) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  v1::GetCheckpointRequest request;
  TY_ASSIGN_OR_RETURN(*request.mutable_name(),
                      ResolveCheckpoint(*link, context.options.selectors[0]));
  TY_ASSIGN_OR_RETURN(const v1::Checkpoint checkpoint,
                      link->Call(&v1::CheckpointService::Stub::GetCheckpoint, request));
  TY_ASSIGN_OR_RETURN(const CheckpointId id, ParseCheckpointName(checkpoint.name()));
  std::string directory = context.options.output_dir;
  if (directory.empty()) directory = absl::StrCat("job-", id.job.value, "-step-", id.step);
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
  context.Say(absl::StrCat(checkpoint.name(), "  ", FormatBytes(TotalSize(checkpoint))));
  for (const v1::CheckpointFile& file : checkpoint.files()) {
    if (!IsFileName(file.name())) {
      return error::CorruptFile(checkpoint.name(),
                                absl::StrCat("'", file.name(), "' is no plain file name"));
    }
    TY_RETURN_IF_ERROR(FetchFile(context, *link, checkpoint.name(), file, directory));
  }
  // Last: whoever sees it may rely on the rest.
  TY_RETURN_IF_ERROR(WriteFileAtomically(manifest_path, manifest));
  if (!PrintOne(context, checkpoint, checkpoint.name())) context.out << directory << "\n";
  context.Say("every hash is right");
  return link::kOk;
}

}  // namespace trainyard::commands
