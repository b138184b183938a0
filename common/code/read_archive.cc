// common/tar takes the form of tar apart. What the entries say is checked here.
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/code_errors.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"
#include "common/code/archive.h"
#include "common/tar/tar.h"

namespace trainyard::code {
namespace {

constexpr size_t kDepthMax = 64;

constexpr char kArchiveName[] = "the code archive";

absl::Status Broken(absl::string_view what) {
  return error::CorruptFile(kArchiveName, what);
}

// Reads what the head says, and refuses what no archive of ours has.
absl::StatusOr<Entry> EntryOf(const tar::Head& head) {
  Entry entry;
  entry.path = head.path;
  TY_RETURN_IF_ERROR(CheckPath(entry.path));
  const std::string shown = absl::StrCat("'", entry.path, "'");
  switch (head.kind) {
    case tar::Head::Kind::kFile:
      entry.is_executable = head.is_executable;
      entry.size = head.size;
      if (entry.size < 0) return Broken(absl::StrCat(shown, " has no size"));
      return entry;
    case tar::Head::Kind::kFolder:
      entry.kind = Entry::Kind::kFolder;
      return entry;
    case tar::Head::Kind::kLink:
      entry.kind = Entry::Kind::kLink;
      entry.target = head.target;
      TY_RETURN_IF_ERROR(CheckTarget(entry.path, entry.target));
      return entry;
    case tar::Head::Kind::kHardLink:
      return Broken(absl::StrCat(shown, " is a hard link"));
    case tar::Head::Kind::kOther:
      break;
  }
  return Broken(absl::StrCat(shown, " is neither a file nor a folder nor a link"));
}

// Returns OK if the entry lies below nothing but folders, and its path is new.
absl::Status CheckPlace(const Entry& entry, std::map<std::string, Entry::Kind>& seen) {
  for (size_t slash = entry.path.find('/'); slash != entry.path.npos;
       slash = entry.path.find('/', slash + 1)) {
    const std::string above = entry.path.substr(0, slash);
    const auto [found, is_new] = seen.emplace(above, Entry::Kind::kFolder);
    if (found->second == Entry::Kind::kFolder) continue;
    return Broken(absl::StrCat("'", entry.path, "' lies below '", above, "', which is no folder"));
  }
  const auto [found, is_new] = seen.emplace(entry.path, entry.kind);
  const bool are_folders =
      found->second == Entry::Kind::kFolder && entry.kind == Entry::Kind::kFolder;
  if (is_new || are_folders) return absl::OkStatus();
  return Broken(absl::StrCat("'", entry.path, "' is there twice"));
}

// Reads the bytes of one entry. What a head says is no promise, so the bytes are counted.
class EntryContent : public Content {
 public:
  EntryContent(tar::Reader& reader, int64_t bytes_max) : reader_(reader), bytes_max_(bytes_max) {}

  absl::StatusOr<absl::string_view> Next() override {
    TY_ASSIGN_OR_RETURN(const absl::string_view block, reader_.Read());
    bytes_ += static_cast<int64_t>(block.size());
    if (bytes_ > bytes_max_) return Broken("a file is longer than its header says");
    return block;
  }

 private:
  tar::Reader& reader_;
  const int64_t bytes_max_;
  int64_t bytes_ = 0;
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
    if (part.size() > kNameBytesMax) {
      return Broken(absl::StrCat(shown, " has a name of ", part.size(), " bytes; expected at most ",
                                 kNameBytesMax));
    }
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

absl::Status ReadArchive(int archive, const Visit& visit, const Limits& limits) {
  tar::Reader reader(tar::SourceOf(archive, kArchiveName), kArchiveName);
  int64_t entries = 0;
  int64_t content_bytes = 0;
  std::map<std::string, Entry::Kind> seen;
  while (true) {
    TY_ASSIGN_OR_RETURN(const std::optional<tar::Head> head, reader.Next());
    if (!head.has_value()) return absl::OkStatus();
    if (++entries > limits.entries) {
      return error::CodeTooLarge(
          absl::StrCat("it has more than ", FormatCount(limits.entries), " files and folders"));
    }
    TY_ASSIGN_OR_RETURN(const Entry entry, EntryOf(*head));
    TY_RETURN_IF_ERROR(CheckPlace(entry, seen));
    // Folders that only paths imply are made as well.
    if (static_cast<int64_t>(seen.size()) > limits.entries) {
      return error::CodeTooLarge(
          absl::StrCat("it has more than ", FormatCount(limits.entries), " files and folders"));
    }
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
