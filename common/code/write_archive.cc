// Times, owners and all but one bit of the mode are left out, because they differ between two
// copies of the same folder. GNU's form of tar keeps the bytes of names as they are, in any locale.
#include <archive.h>
#include <archive_entry.h>
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
#include "common/tls/digest.h"

namespace trainyard::code {
namespace {

constexpr size_t kWriteBlock = size_t{64} << 10;

}  // namespace

struct ArchiveWriter::State {
  std::string path;
  Limits limits;
  UniqueFd fd;
  tls::Sha256Hasher hasher;
  archive* writer = nullptr;
  archive_entry* entry = nullptr;
  int64_t entries = 0;
  int64_t content_bytes = 0;
  absl::Status failed;

  ~State() {
    archive_entry_free(entry);
    archive_write_free(writer);
  }
  absl::Status Failure() const {
    if (!failed.ok()) return failed;
    const char* text = archive_error_string(writer);
    return absl::UnavailableError(absl::StrCat("cannot write '", path, "': ", text ? text : "?"));
  }
};

namespace {

using WriteCallback = la_ssize_t (*)(archive*, void*, const void*, size_t);

// Hashes what libarchive writes, and passes it on.
template <typename State>
la_ssize_t WriteBlock(archive* writer, void* data, const void* bytes, size_t size) {
  auto& state = *static_cast<State*>(data);
  const absl::string_view block(static_cast<const char*>(bytes), size);
  state.hasher.Update(block);
  state.failed = WriteFully(state.fd.get(), block, state.path);
  if (state.failed.ok()) return static_cast<la_ssize_t>(size);
  archive_set_error(writer, EIO, "cannot write");
  return -1;
}

}  // namespace

ArchiveWriter::ArchiveWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
ArchiveWriter::~ArchiveWriter() = default;

absl::StatusOr<std::unique_ptr<ArchiveWriter>> ArchiveWriter::Create(const std::string& path,
                                                                     const Limits& limits) {
  auto state = std::make_unique<State>();
  state->path = path;
  state->limits = limits;
  TY_ASSIGN_OR_RETURN(state->fd, OpenFile(path, O_WRONLY | O_CREAT | O_TRUNC, 0600));
  state->writer = archive_write_new();
  state->entry = archive_entry_new();
  if (state->writer == nullptr || state->entry == nullptr) {
    return absl::ResourceExhaustedError("there is no memory for an archive");
  }
  const WriteCallback write = &WriteBlock<State>;
  if (archive_write_set_format_gnutar(state->writer) != ARCHIVE_OK ||
      archive_write_add_filter_none(state->writer) != ARCHIVE_OK ||
      archive_write_set_bytes_per_block(state->writer, kWriteBlock) != ARCHIVE_OK ||
      archive_write_set_bytes_in_last_block(state->writer, 1) != ARCHIVE_OK ||
      archive_write_open(state->writer, state.get(), nullptr, write, nullptr) != ARCHIVE_OK) {
    return state->Failure();
  }
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
  archive_entry_clear(state.entry);
  archive_entry_set_pathname(state.entry, entry.path.c_str());
  archive_entry_set_size(state.entry, size);
  archive_entry_set_mtime(state.entry, 0, 0);
  switch (entry.kind) {
    case Entry::Kind::kFile:
      archive_entry_set_filetype(state.entry, AE_IFREG);
      archive_entry_set_perm(state.entry, entry.is_executable ? 0755 : 0644);
      break;
    case Entry::Kind::kFolder:
      archive_entry_set_filetype(state.entry, AE_IFDIR);
      archive_entry_set_perm(state.entry, 0755);
      break;
    case Entry::Kind::kLink:
      TY_RETURN_IF_ERROR(CheckTarget(entry.path, entry.target));
      archive_entry_set_filetype(state.entry, AE_IFLNK);
      archive_entry_set_perm(state.entry, 0777);
      archive_entry_set_symlink(state.entry, entry.target.c_str());
      break;
  }
  if (archive_write_header(state.writer, state.entry) != ARCHIVE_OK) return state.Failure();
  std::string block(static_cast<size_t>(std::min<int64_t>(size, kWriteBlock)), '\0');
  for (int64_t left = size; left > 0;) {
    const size_t wanted = std::min(block.size(), static_cast<size_t>(left));
    const ssize_t got = read(content, block.data(), wanted);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, "cannot read", entry.path);
    if (got == 0) {
      return absl::AbortedError(absl::StrCat("'", entry.path, "' has just become shorter"));
    }
    if (archive_write_data(state.writer, block.data(), static_cast<size_t>(got)) != got) {
      return state.Failure();
    }
    left -= got;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ArchiveWriter::Finish() {
  if (archive_write_close(state_->writer) != ARCHIVE_OK) return state_->Failure();
  return state_->hasher.Text();
}

}  // namespace trainyard::code
