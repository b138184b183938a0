// Indexes images. The order of the samples depends only on the names, so that it is the same on
// every host.
#include "worker/data/image_index.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "worker/data/data_file.h"

namespace trainyard::data {
namespace {

namespace fs = std::filesystem;

constexpr absl::string_view kIndexMagic = "trainyard-tar-index-1";
constexpr int64_t kMaxIndexBytes = int64_t{1} << 30;

bool IsJpeg(absl::string_view name) {
  return absl::EndsWithIgnoreCase(name, ".jpg") || absl::EndsWithIgnoreCase(name, ".jpeg");
}

// The header line states the length of the shard and the hash of the lines that follow.
std::string EncodeIndex(int64_t shard_bytes, const std::vector<TarMember>& members) {
  std::string lines;
  for (const TarMember& member : members) {
    absl::StrAppend(&lines, member.offset, " ", member.size, " ", member.name, "\n");
  }
  return absl::StrCat(kIndexMagic, " ", shard_bytes, " ", ContentHash(lines), "\n", lines);
}

// Returns false unless this is what EncodeIndex wrote for a shard of this length.
bool DecodeIndex(absl::string_view text, int64_t shard_bytes, std::vector<TarMember>& members) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits('\n', 1));
  if (parts.first != absl::StrCat(kIndexMagic, " ", shard_bytes, " ", ContentHash(parts.second))) {
    return false;
  }
  for (const absl::string_view line : absl::StrSplit(parts.second, '\n', absl::SkipEmpty())) {
    const std::vector<absl::string_view> fields = absl::StrSplit(line, absl::MaxSplits(' ', 2));
    TarMember member;
    if (fields.size() != 3 || !absl::SimpleAtoi(fields[0], &member.offset) ||
        !absl::SimpleAtoi(fields[1], &member.size) || member.offset < 0 || member.size < 0 ||
        member.size > shard_bytes - member.offset) {
      return false;
    }
    member.name = std::string(fields[2]);
    members.push_back(std::move(member));
  }
  return true;
}

bool IsOlder(const std::string& path, const std::string& than) {
  std::error_code error;
  const auto time = fs::last_write_time(path, error);
  if (error) return true;
  const auto other = fs::last_write_time(than, error);
  return error || time < other;
}

// Returns the folder directly above the member.
absl::string_view ClassOf(absl::string_view name) {
  const size_t end = name.rfind('/');
  if (end == absl::string_view::npos) return "";
  const size_t begin = name.substr(0, end).rfind('/');
  return begin == absl::string_view::npos ? name.substr(0, end)
                                          : name.substr(begin + 1, end - begin - 1);
}

// Returns the names of the JPEGs below `folder`/`class_name`, relative to `folder`, sorted.
absl::StatusOr<std::vector<std::string>> ListClass(const std::string& folder,
                                                   const std::string& class_name) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::recursive_directory_iterator it(JoinPath(folder, class_name), error), end;
       !error && it != end; it.increment(error)) {
    const std::string path = it->path().string();
    if (IsJpeg(path) && it->is_regular_file(error)) names.push_back(path.substr(folder.size() + 1));
  }
  if (error) return ErrnoStatus(error.value(), "cannot list", JoinPath(folder, class_name));
  std::sort(names.begin(), names.end());
  return names;
}

absl::StatusOr<int32_t> LabelOf(const ImageIndex& index, absl::string_view class_name,
                                const std::string& path) {
  const auto found = std::lower_bound(index.classes.begin(), index.classes.end(), class_name);
  if (found != index.classes.end() && *found == class_name) {
    return static_cast<int32_t>(found - index.classes.begin());
  }
  return error::CorruptFile(
      path, absl::StrCat("class '", class_name, "' is none of the ", index.classes.size(),
                         " classes of the training split"));
}

// Every folder of a split is a class, so one without images is the trace of images that are
// missing, or no class at all. It would be one that the training never sees.
absl::Status AddFiles(const std::vector<std::string>& class_names, ImageIndex& index) {
  std::vector<std::string> empty;
  for (const std::string& class_name : class_names) {
    TY_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListClass(index.folder, class_name));
    if (names.empty()) {
      empty.push_back(JoinPath(index.folder, class_name));
      continue;
    }
    TY_ASSIGN_OR_RETURN(const int32_t label,
                        LabelOf(index, class_name, JoinPath(index.folder, class_name)));
    for (const std::string& name : names) {
      TY_ASSIGN_OR_RETURN(const int64_t size, FileSize(JoinPath(index.folder, name)));
      index.entries.push_back({.name = name, .label = label, .size = size});
    }
  }
  if (empty.empty() || index.entries.empty()) return absl::OkStatus();
  return error::DatasetIncomplete(
      "images", absl::StrCat("each folder of a split is a class, but ", empty.size(), " of ",
                             class_names.size(), " have no JPEG, such as '", empty.front(),
                             "'; put the images there, or remove the folder"));
}

absl::Status AddShards(bool finds_classes, ImageIndex& index) {
  for (size_t i = 0; i < index.shards.size(); ++i) {
    TY_ASSIGN_OR_RETURN(const std::vector<TarMember> members, ReadShardMembers(index.shards[i]));
    for (const TarMember& member : members) {
      if (!IsJpeg(member.name)) continue;
      if (ClassOf(member.name).empty()) {
        return error::CorruptFile(index.shards[i],
                                  absl::StrCat("byte ", member.offset, ": member '", member.name,
                                               "' lies in no folder named after its class"));
      }
      index.entries.push_back({.name = member.name,
                               .shard = static_cast<int32_t>(i),
                               .offset = member.offset,
                               .size = member.size});
    }
  }
  if (finds_classes) {
    std::set<std::string> classes;
    for (const ImageEntry& entry : index.entries) {
      classes.insert(std::string(ClassOf(entry.name)));
    }
    index.classes.assign(classes.begin(), classes.end());
  }
  for (ImageEntry& entry : index.entries) {
    TY_ASSIGN_OR_RETURN(entry.label, LabelOf(index, ClassOf(entry.name), index.PathOf(entry)));
  }
  return absl::OkStatus();
}

}  // namespace

std::string ImageIndex::PathOf(const ImageEntry& entry) const {
  return entry.shard < 0 ? JoinPath(folder, entry.name)
                         : absl::StrCat(shards[static_cast<size_t>(entry.shard)], "!", entry.name);
}

std::string ImageIndex::Digest() const {
  ContentHasher hasher;
  for (const ImageEntry& entry : entries) {
    hasher.Update(absl::StrCat(entry.name, "\t", entry.size, "\t", entry.label, "\n"));
  }
  return hasher.Text();
}

absl::StatusOr<std::vector<TarMember>> ReadShardMembers(const std::string& shard) {
  TY_ASSIGN_OR_RETURN(const int64_t bytes, FileSize(shard));
  const std::string index_path = absl::StrCat(shard, ".index");
  if (!IsOlder(index_path, shard)) {
    const auto text = ReadDataFile(index_path, kMaxIndexBytes);
    const bool is_trap = ErrorReason(text.status()) == "NOT_A_REGULAR_FILE";
    std::error_code error;
    // A folder in its place is only a place where no index can be kept.
    if (is_trap && !fs::is_directory(index_path, error)) return text.status();
    std::vector<TarMember> members;
    if (text.ok() && DecodeIndex(*text, bytes, members)) return members;
  }
  auto members = ListTar(
      bytes, [&shard](int64_t offset, int64_t size) { return ReadDataRange(shard, offset, size); });
  if (absl::IsDataLoss(members.status())) {
    return error::CorruptFile(shard, members.status().message());
  }
  TY_RETURN_IF_ERROR(members.status());
  const bool has_line_breaks =
      std::any_of(members->begin(), members->end(),
                  [](const TarMember& member) { return absl::StrContains(member.name, '\n'); });
  if (has_line_breaks) return members;
  const absl::Status written = WriteFileAtomically(index_path, EncodeIndex(bytes, *members));
  if (!written.ok()) {
    LogWarning("cannot keep the index of a shard", {{"error", std::string(written.message())}});
  }
  return members;
}

absl::StatusOr<ImageIndex> ReadImageIndex(const std::string& folder,
                                          const std::vector<std::string>& classes) {
  ImageIndex index;
  index.folder = folder;
  index.classes = classes;
  TY_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(folder));
  std::vector<std::string> folders;
  for (const std::string& name : names) {
    const std::string path = JoinPath(folder, name);
    std::error_code error;
    if (fs::is_directory(path, error)) {
      folders.push_back(name);
    } else if (absl::EndsWith(name, ".tar")) {
      index.shards.push_back(path);
    }
  }
  if (!index.shards.empty()) {
    TY_RETURN_IF_ERROR(AddShards(classes.empty(), index));
  } else {
    if (classes.empty()) index.classes = folders;
    TY_RETURN_IF_ERROR(AddFiles(folders, index));
  }
  if (index.entries.empty()) {
    return absl::NotFoundError(absl::StrCat("'", folder,
                                            "' has no JPEG in a folder of its class"
                                            " and no shard (*.tar) of such"));
  }
  return index;
}

}  // namespace trainyard::data
