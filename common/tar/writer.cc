// libarchive makes the form, and hands its bytes on in blocks.
#include <archive.h>
#include <archive_entry.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/tar/tar.h"

namespace trainyard::tar {
namespace {

constexpr int kWriteBlock = 64 << 10;

}  // namespace

struct Writer::State {
  Sink sink;
  std::string name;
  archive* writer = nullptr;
  archive_entry* entry = nullptr;
  absl::Status failed;  // of the sink

  ~State() {
    archive_entry_free(entry);
    archive_write_free(writer);
  }

  static la_ssize_t Push(archive* writer, void* data, const void* bytes, size_t size) {
    auto& state = *static_cast<State*>(data);
    // After a failure, libarchive pads the archive once more while it is freed.
    if (!state.failed.ok()) return -1;
    state.failed = state.sink({static_cast<const char*>(bytes), size});
    if (state.failed.ok()) return static_cast<la_ssize_t>(size);
    archive_set_error(writer, EIO, "cannot write");
    return -1;
  }

  absl::Status Failure() const {
    if (!failed.ok()) return failed;
    const char* text = archive_error_string(writer);
    return absl::UnavailableError(absl::StrCat("cannot write ", name, ": ", text ? text : "?"));
  }
};

Writer::Writer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Writer::~Writer() {
  // An archive that was not finished needs no end.
  if (state_->failed.ok()) state_->failed = absl::CancelledError("the archive was given up");
}

absl::StatusOr<std::unique_ptr<Writer>> Writer::Create(Sink sink, std::string name) {
  auto state = std::make_unique<State>();
  state->sink = std::move(sink);
  state->name = std::move(name);
  state->writer = archive_write_new();
  state->entry = archive_entry_new();
  if (state->writer == nullptr || state->entry == nullptr) {
    return absl::ResourceExhaustedError("there is no memory for an archive");
  }
  if (archive_write_set_format_gnutar(state->writer) != ARCHIVE_OK ||
      archive_write_add_filter_none(state->writer) != ARCHIVE_OK ||
      archive_write_set_bytes_per_block(state->writer, kWriteBlock) != ARCHIVE_OK ||
      archive_write_set_bytes_in_last_block(state->writer, 1) != ARCHIVE_OK ||
      archive_write_open(state->writer, state.get(), nullptr, &State::Push, nullptr) !=
          ARCHIVE_OK) {
    return state->Failure();
  }
  return std::unique_ptr<Writer>(new Writer(std::move(state)));
}

absl::Status Writer::Begin(const Head& head) {
  State& state = *state_;
  archive_entry_clear(state.entry);
  archive_entry_set_pathname(state.entry, head.path.c_str());
  archive_entry_set_size(state.entry, head.kind == Head::Kind::kFile ? head.size : 0);
  archive_entry_set_mtime(state.entry, 0, 0);
  switch (head.kind) {
    case Head::Kind::kFile:
      archive_entry_set_filetype(state.entry, AE_IFREG);
      archive_entry_set_perm(state.entry, head.is_executable ? 0755 : 0644);
      break;
    case Head::Kind::kFolder:
      archive_entry_set_filetype(state.entry, AE_IFDIR);
      archive_entry_set_perm(state.entry, 0755);
      break;
    case Head::Kind::kLink:
      archive_entry_set_filetype(state.entry, AE_IFLNK);
      archive_entry_set_perm(state.entry, 0777);
      archive_entry_set_symlink(state.entry, head.target.c_str());
      break;
    default:
      return absl::InvalidArgumentError(absl::StrCat("'", head.path, "' cannot be archived"));
  }
  if (archive_write_header(state.writer, state.entry) != ARCHIVE_OK) return state.Failure();
  return absl::OkStatus();
}

absl::Status Writer::Write(absl::string_view bytes) {
  const la_ssize_t written = archive_write_data(state_->writer, bytes.data(), bytes.size());
  if (written != static_cast<la_ssize_t>(bytes.size())) return state_->Failure();
  return absl::OkStatus();
}

absl::Status Writer::Finish() {
  if (archive_write_close(state_->writer) != ARCHIVE_OK) return state_->Failure();
  return absl::OkStatus();
}

}  // namespace trainyard::tar
