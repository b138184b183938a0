// libarchive takes the form of tar apart, and no other form is switched on. What the entries say is
// checked here.
#include <archive.h>
#include <archive_entry.h>

#include <algorithm>
#include <array>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/check.h"
#include "common/base/code_errors.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"
#include "common/code/archive.h"

namespace trainyard::code {
namespace {

constexpr size_t kReadBlock = size_t{64} << 10;
constexpr size_t kDepthMax = 64;

absl::Status Broken(absl::string_view what) {
  return error::CorruptFile("the code archive", what);
}

absl::Status BrokenReader(archive* reader) {
  const char* text = archive_error_string(reader);
  return Broken(text == nullptr ? "it is no tar file" : text);
}

std::string TextOf(const char* text) {
  return text == nullptr ? "" : text;
}

// Reads what the header says, and refuses what no archive of ours has.
absl::StatusOr<Entry> EntryOf(archive_entry* header) {
  Entry entry;
  entry.path = std::string(absl::StripSuffix(TextOf(archive_entry_pathname(header)), "/"));
  TY_RETURN_IF_ERROR(CheckPath(entry.path));
  const std::string shown = absl::StrCat("'", entry.path, "'");
  if (archive_entry_hardlink(header) != nullptr) {
    return Broken(absl::StrCat(shown, " is a hard link"));
  }
  switch (archive_entry_filetype(header)) {
    case AE_IFREG:
      entry.is_executable = (archive_entry_perm(header) & 0100) != 0;
      entry.size = archive_entry_size(header);
      if (entry.size < 0) return Broken(absl::StrCat(shown, " has no size"));
      return entry;
    case AE_IFDIR:
      entry.kind = Entry::Kind::kFolder;
      return entry;
    case AE_IFLNK:
      entry.kind = Entry::Kind::kLink;
      entry.target = TextOf(archive_entry_symlink(header));
      TY_RETURN_IF_ERROR(CheckTarget(entry.path, entry.target));
      return entry;
    default:
      return Broken(absl::StrCat(shown, " is neither a file nor a folder nor a link"));
  }
}

// Reads the bytes of one entry. What a header says is no promise, so the bytes are counted.
class EntryContent : public Content {
 public:
  EntryContent(archive* reader, int64_t bytes_max) : reader_(reader), bytes_max_(bytes_max) {}

  absl::StatusOr<absl::string_view> Next() override {
    const la_ssize_t got = archive_read_data(reader_, block_.data(), block_.size());
    if (got < 0) return BrokenReader(reader_);
    bytes_ += got;
    if (bytes_ > bytes_max_) return Broken("a file is longer than its header says");
    return absl::string_view(block_.data(), static_cast<size_t>(got));
  }

 private:
  archive* const reader_;
  const int64_t bytes_max_;
  int64_t bytes_ = 0;
  std::array<char, kReadBlock> block_;
};

}  // namespace

absl::Status CheckPath(absl::string_view path) {
  if (path.empty()) return Broken("it has an entry without a path");
  const std::string shown = absl::StrCat("'", path.substr(0, 200), "'");
  if (path.size() > kPathBytesMax) {
    return Broken(absl::StrCat(shown, " has a path of ", path.size(), " bytes; expected at most ",
                               kPathBytesMax));
  }
  const std::vector<absl::string_view> parts = absl::StrSplit(path, '/');
  if (parts.size() > kDepthMax) {
    return Broken(
        absl::StrCat(shown, " lies ", parts.size(), " folders deep; expected at most ", kDepthMax));
  }
  for (const absl::string_view part : parts) {
    if (!part.empty() && part != "." && part != ".." && part.find('\0') == part.npos) continue;
    return Broken(absl::StrCat(shown, " is no path below the folder of the code"));
  }
  return absl::OkStatus();
}

absl::Status CheckTarget(absl::string_view path, absl::string_view target) {
  const auto leads_out = [&] {
    return Broken(absl::StrCat("the link '", path, "' leads to '", target.substr(0, 200),
                               "', out of the folder of the code"));
  };
  if (target.empty() || target.size() > kPathBytesMax || target.front() == '/') return leads_out();
  // The folders above the link are none themselves, so it is known where its first '..' lead.
  auto depth = std::count(path.begin(), path.end(), '/');
  bool is_down = false;
  for (const absl::string_view part : absl::StrSplit(target, '/')) {
    if (part.empty() || part == ".") continue;
    if (part != "..") {
      is_down = true;
      continue;
    }
    // Behind a name, which may be a link itself, nobody knows where '..' leads.
    if (is_down || --depth < 0) return leads_out();
  }
  return absl::OkStatus();
}

absl::Status ReadArchive(int archive_fd, const Visit& visit, const Limits& limits) {
  archive* reader = archive_read_new();
  TY_CHECK(reader != nullptr);
  const auto destroy = absl::MakeCleanup([reader] { archive_read_free(reader); });
  if (archive_read_support_format_tar(reader) != ARCHIVE_OK ||
      archive_read_open_fd(reader, archive_fd, kReadBlock) != ARCHIVE_OK) {
    return BrokenReader(reader);
  }
  int64_t entries = 0;
  int64_t content_bytes = 0;
  while (true) {
    archive_entry* header = nullptr;
    const int got = archive_read_next_header(reader, &header);
    if (got == ARCHIVE_EOF) return absl::OkStatus();
    if (got != ARCHIVE_OK) return BrokenReader(reader);
    if (++entries > limits.entries) {
      return error::CodeTooLarge(
          absl::StrCat("it has more than ", FormatCount(limits.entries), " files and folders"));
    }
    TY_ASSIGN_OR_RETURN(const Entry entry, EntryOf(header));
    if (entry.size > limits.content_bytes - content_bytes) {
      return error::CodeTooLarge(
          absl::StrCat("its files have more than ", FormatBytes(limits.content_bytes)));
    }
    content_bytes += entry.size;
    EntryContent content(reader, entry.size);
    TY_RETURN_IF_ERROR(visit(entry, content));
  }
}

}  // namespace trainyard::code
