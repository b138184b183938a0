// libarchive takes the form of tar apart, and no other form is switched on.
#include <archive.h>
#include <archive_entry.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/check.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/tar/tar.h"

namespace trainyard::tar {
namespace {

constexpr size_t kReadBlock = size_t{64} << 10;

std::string TextOf(const char* text) {
  return text == nullptr ? "" : text;
}

Head HeadOf(archive_entry* header) {
  Head head;
  head.path = std::string(absl::StripSuffix(TextOf(archive_entry_pathname(header)), "/"));
  if (archive_entry_hardlink(header) != nullptr) {
    head.kind = Head::Kind::kHardLink;
    return head;
  }
  switch (archive_entry_filetype(header)) {
    case AE_IFREG:
      head.is_executable = (archive_entry_perm(header) & 0100) != 0;
      head.size = archive_entry_size(header);
      break;
    case AE_IFDIR:
      head.kind = Head::Kind::kFolder;
      break;
    case AE_IFLNK:
      head.kind = Head::Kind::kLink;
      head.target = TextOf(archive_entry_symlink(header));
      break;
    default:
      head.kind = Head::Kind::kOther;
  }
  return head;
}

}  // namespace

Source SourceOf(int fd, std::string path) {
  return [fd, path = std::move(path),
          block = std::string(kReadBlock, '\0')]() mutable -> absl::StatusOr<absl::string_view> {
    while (true) {
      const ssize_t got = read(fd, block.data(), block.size());
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return ErrnoStatus(errno, "cannot read", path);
      return absl::string_view(block.data(), static_cast<size_t>(got));
    }
  };
}

struct Reader::State {
  Source source;
  std::string name;
  archive* reader = nullptr;
  bool is_open = false;
  absl::Status failed;  // of the source
  std::array<char, kReadBlock> block;

  ~State() { archive_read_free(reader); }

  static la_ssize_t Pull(archive* reader, void* data, const void** bytes) {
    auto& state = *static_cast<State*>(data);
    const auto block = state.source();
    if (!block.ok()) {
      state.failed = block.status();
      archive_set_error(reader, EIO, "cannot read");
      return -1;
    }
    *bytes = block->data();
    return static_cast<la_ssize_t>(block->size());
  }

  absl::Status Failure() const {
    if (!failed.ok()) return failed;
    const char* text = archive_error_string(reader);
    return error::CorruptFile(name, text == nullptr ? "it is no tar file" : text);
  }
};

Reader::Reader(Source source, std::string name) : state_(std::make_unique<State>()) {
  state_->source = std::move(source);
  state_->name = std::move(name);
  state_->reader = archive_read_new();
  TY_CHECK(state_->reader != nullptr);
}
Reader::~Reader() = default;

absl::StatusOr<std::optional<Head>> Reader::Next() {
  State& state = *state_;
  if (!state.is_open) {
    if (archive_read_support_format_tar(state.reader) != ARCHIVE_OK ||
        archive_read_open(state.reader, &state, nullptr, &State::Pull, nullptr) != ARCHIVE_OK) {
      return state.Failure();
    }
    state.is_open = true;
  }
  archive_entry* header = nullptr;
  const int got = archive_read_next_header(state.reader, &header);
  if (got == ARCHIVE_EOF) return std::nullopt;
  if (got != ARCHIVE_OK) return state.Failure();
  return HeadOf(header);
}

absl::StatusOr<absl::string_view> Reader::Read() {
  State& state = *state_;
  const la_ssize_t got = archive_read_data(state.reader, state.block.data(), state.block.size());
  if (got < 0) return state.Failure();
  return absl::string_view(state.block.data(), static_cast<size_t>(got));
}

}  // namespace trainyard::tar
