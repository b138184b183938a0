// Times, owners and all but one bit of the mode are left out, because they differ between two
// copies of the same folder.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/code_errors.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"
#include "common/code/archive.h"
#include "common/tar/tar.h"
#include "common/tls/digest.h"

namespace trainyard::code {
namespace {

constexpr size_t kContentBlock = size_t{64} << 10;

tar::Head HeadOf(const Entry& entry) {
  tar::Head head;
  head.path = entry.path;
  head.is_executable = entry.is_executable;
  switch (entry.kind) {
    case Entry::Kind::kFile:
      head.size = entry.size;
      break;
    case Entry::Kind::kFolder:
      head.kind = tar::Head::Kind::kFolder;
      break;
    case Entry::Kind::kLink:
      head.kind = tar::Head::Kind::kLink;
      head.target = entry.target;
      break;
  }
  return head;
}

}  // namespace

struct ArchiveWriter::State {
  std::string path;
  Limits limits;
  UniqueFd fd;
  tls::Sha256Hasher hasher;
  std::unique_ptr<tar::Writer> writer;
  int64_t entries = 0;
  int64_t content_bytes = 0;
};

ArchiveWriter::ArchiveWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
ArchiveWriter::~ArchiveWriter() = default;

absl::StatusOr<std::unique_ptr<ArchiveWriter>> ArchiveWriter::Create(const std::string& path,
                                                                     const Limits& limits) {
  auto state = std::make_unique<State>();
  state->path = path;
  state->limits = limits;
  TY_ASSIGN_OR_RETURN(state->fd, OpenFile(path, O_WRONLY | O_CREAT | O_TRUNC, 0600));
  const auto write = [to = state.get()](absl::string_view bytes) {
    to->hasher.Update(bytes);
    return WriteFully(to->fd.get(), bytes, to->path);
  };
  TY_ASSIGN_OR_RETURN(state->writer, tar::Writer::Create(write, absl::StrCat("'", path, "'")));
  return std::unique_ptr<ArchiveWriter>(new ArchiveWriter(std::move(state)));
}

absl::Status ArchiveWriter::Add(const Entry& entry, int content) {
  State& state = *state_;
  TY_RETURN_IF_ERROR(CheckPath(entry.path));
  const int64_t size = entry.kind == Entry::Kind::kFile ? entry.size : 0;
  if (++state.entries > state.limits.entries) {
    return error::CodeTooLarge(
        absl::StrCat("it has more than ", FormatCount(state.limits.entries), " files and folders"));
  }
  state.content_bytes += size;
  if (state.content_bytes > state.limits.content_bytes) {
    return error::CodeTooLarge(
        absl::StrCat("its files have more than ", FormatBytes(state.limits.content_bytes)));
  }
  if (entry.kind == Entry::Kind::kLink) TY_RETURN_IF_ERROR(CheckTarget(entry.path, entry.target));
  TY_RETURN_IF_ERROR(state.writer->Begin(HeadOf(entry)));
  std::string block(static_cast<size_t>(std::min<int64_t>(size, kContentBlock)), '\0');
  for (int64_t left = size; left > 0;) {
    const size_t wanted = std::min(block.size(), static_cast<size_t>(left));
    const ssize_t got = read(content, block.data(), wanted);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, "cannot read", entry.path);
    if (got == 0) {
      return absl::AbortedError(absl::StrCat("'", entry.path, "' has just become shorter"));
    }
    TY_RETURN_IF_ERROR(state.writer->Write({block.data(), static_cast<size_t>(got)}));
    left -= got;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ArchiveWriter::Finish() {
  TY_RETURN_IF_ERROR(state_->writer->Finish());
  return state_->hasher.Text();
}

}  // namespace trainyard::code
