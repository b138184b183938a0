// The record of a folder is the archive's digest with the stamps of all files that made it. It has
// a hash of its own, so that a record that was cut off is as good as none.
#include "client/code/archive_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/code/ignore_rules.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/hash.h"
#include "common/base/status_macros.h"
#include "common/tls/digest.h"

namespace trainyard::code {
namespace {

constexpr absl::string_view kFormat = "trainyard-code-1";
// A file that was written less than this before it was listed may have been written once more
// without another time.
constexpr absl::Duration kTimeGrain = absl::Seconds(2);
constexpr int kTries = 3;
constexpr int64_t kRecordBytesMax = int64_t{256} << 20;

// The record that a cache keeps of a folder.
struct Record {
  std::string digest;
  int64_t start_ns = 0;  // when the listing began
  bool has_untracked = false;
  std::vector<std::string> left_out;
  std::vector<std::pair<std::string, Stamp>> files;  // absolute paths
};

void AppendStamp(std::string& text, const std::string& path, const Stamp& stamp) {
  absl::StrAppend(&text, stamp.mode, " ", stamp.size, " ", stamp.mtime_ns, " ", stamp.ctime_ns, " ",
                  stamp.inode, " ", stamp.device, " ", path, absl::string_view("\0", 1));
}

std::string Encode(const Record& record) {
  const absl::string_view end("\0", 1);
  std::string text = absl::StrCat(record.digest, end, record.start_ns, end,
                                  record.has_untracked ? 1 : 0, end, record.left_out.size(), end);
  for (const std::string& sentence : record.left_out) absl::StrAppend(&text, sentence, end);
  for (const auto& [path, stamp] : record.files) AppendStamp(text, path, stamp);
  return absl::StrCat(kFormat, end, ContentHash(text), end, text);
}

// Takes the next word, up to `separator`.
absl::string_view Next(absl::string_view& text, char separator) {
  const size_t end = std::min(text.find(separator), text.size());
  const absl::string_view word = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return word;
}

std::optional<Record> Decode(absl::string_view text) {
  if (Next(text, '\0') != kFormat) return std::nullopt;
  const absl::string_view hash = Next(text, '\0');
  if (hash != ContentHash(text)) return std::nullopt;
  // The hash is right, so it is a text that we have written.
  Record record;
  int left_out = 0;
  int untracked = 0;
  record.digest = std::string(Next(text, '\0'));
  (void)absl::SimpleAtoi(Next(text, '\0'), &record.start_ns);
  (void)absl::SimpleAtoi(Next(text, '\0'), &untracked);
  (void)absl::SimpleAtoi(Next(text, '\0'), &left_out);
  record.has_untracked = untracked != 0;
  for (int i = 0; i < left_out; ++i) record.left_out.emplace_back(Next(text, '\0'));
  while (!text.empty()) {
    absl::string_view line = Next(text, '\0');
    Stamp stamp;
    (void)absl::SimpleAtoi(Next(line, ' '), &stamp.mode);
    (void)absl::SimpleAtoi(Next(line, ' '), &stamp.size);
    (void)absl::SimpleAtoi(Next(line, ' '), &stamp.mtime_ns);
    (void)absl::SimpleAtoi(Next(line, ' '), &stamp.ctime_ns);
    (void)absl::SimpleAtoi(Next(line, ' '), &stamp.inode);
    (void)absl::SimpleAtoi(Next(line, ' '), &stamp.device);
    record.files.emplace_back(std::string(line), stamp);
  }
  return record;
}

// Returns true if no file has changed since the record was made.
bool IsCurrent(const Record& record) {
  const int64_t sure_before = record.start_ns - absl::ToInt64Nanoseconds(kTimeGrain);
  return std::all_of(record.files.begin(), record.files.end(), [&](const auto& file) {
    return file.second.ctime_ns < sure_before && StampOf(file.first) == file.second;
  });
}

// Lets the repository know the patterns that held when the record was made.
absl::Status LoadRules(const Record& record, const std::string& folder, Repository& repository) {
  const std::string name = absl::StrCat("/", kOwnIgnore);
  std::set<std::string> loaded;
  for (const auto& [path, stamp] : record.files) {
    if (!absl::EndsWith(path, name) || !loaded.insert(path).second) continue;
    TY_ASSIGN_OR_RETURN(const std::string rules, ReadRegularFile(path, kRulesBytesMax));
    const std::string above = path.substr(0, path.size() - name.size());
    TY_RETURN_IF_ERROR(
        repository.AddRules(absl::StripPrefix(above.substr(folder.size()), "/"), rules));
  }
  return absl::OkStatus();
}

// Writes the archive of what was listed. Returns ABORTED if a file changes meanwhile.
absl::StatusOr<std::string> WriteArchive(const std::string& folder, const Listing& listing,
                                         const std::string& path, const Limits& limits) {
  TY_ASSIGN_OR_RETURN(const auto writer, ArchiveWriter::Create(path, limits));
  for (const Entry& entry : listing.entries) {
    UniqueFd content;
    if (entry.kind == Entry::Kind::kFile) {
      auto opened = OpenRegularFile(JoinPath(folder, entry.path), O_RDONLY);
      if (absl::IsNotFound(opened.status())) {
        return absl::AbortedError(absl::StrCat("'", entry.path, "' has just been removed"));
      }
      TY_RETURN_IF_ERROR(opened.status());
      content = *std::move(opened);
    }
    TY_RETURN_IF_ERROR(writer->Add(entry, content.get()));
  }
  return writer->Finish();
}

}  // namespace

std::string ArchiveCache::PathOf(absl::string_view digest) const {
  const auto digits = tls::Sha256Digits(digest);
  return absl::StrCat(dir_, "/archives/", digits.value_or("none"), ".tar");
}

std::string ArchiveCache::RecordPath(const std::string& folder) const {
  return absl::StrCat(dir_, "/folders/", *HashDigits(ContentHash(folder)));
}

absl::Status ArchiveCache::Prepare() const {
  TY_RETURN_IF_ERROR(MakeDirectories(JoinPath(dir_, "archives"), 0700));
  return MakeDirectories(JoinPath(dir_, "folders"), 0700);
}

absl::StatusOr<MadeArchive> ArchiveCache::Make(const std::string& given, const Limits& limits) {
  std::error_code failed;
  const std::string folder = std::filesystem::canonical(given, failed).string();
  if (failed || !std::filesystem::is_directory(folder, failed)) {
    return absl::NotFoundError(absl::StrCat("there is no folder '", given, "' with code"));
  }
  TY_RETURN_IF_ERROR(Prepare());
  TY_ASSIGN_OR_RETURN(auto repository, Repository::Open(folder));
  MadeArchive made;
  const std::string record_path = RecordPath(folder);
  std::optional<Record> record = Decode(ReadFile(record_path, kRecordBytesMax).value_or(""));
  made.is_from_cache =
      record.has_value() && FileExists(PathOf(record->digest)) && IsCurrent(*record);
  if (made.is_from_cache) TY_RETURN_IF_ERROR(LoadRules(*record, folder, *repository));
  for (int i = 0; i < kTries && !made.is_from_cache; ++i) {
    record.emplace();
    record->start_ns = absl::ToUnixNanos(clock_.Now());
    // The rules of folders below are added while they are listed, so each try begins anew.
    TY_ASSIGN_OR_RETURN(repository, Repository::Open(folder));
    TY_ASSIGN_OR_RETURN(const Listing listing, ListFolder(folder, *repository, limits));
    const std::string partial = absl::StrCat(dir_, "/archives/", getpid(), ".partial");
    const auto digest = WriteArchive(folder, listing, partial, limits);
    if (!digest.ok()) (void)unlink(partial.c_str());
    if (absl::IsAborted(digest.status()) && i + 1 < kTries) continue;
    TY_RETURN_IF_ERROR(digest.status());
    record->digest = *digest;
    if (rename(partial.c_str(), PathOf(*digest).c_str()) != 0) {
      return ErrnoStatus(errno, "cannot rename to", PathOf(*digest));
    }
    record->has_untracked = listing.has_untracked;
    record->left_out = listing.left_out;
    record->files = listing.rule_files;
    for (size_t entry = 0; entry < listing.entries.size(); ++entry) {
      record->files.emplace_back(JoinPath(folder, listing.entries[entry].path),
                                 listing.stamps[entry]);
    }
    // Without the record the archive is only made again.
    (void)ReplaceFile(record_path, Encode(*record), 0600);
    break;
  }
  made.digest = record->digest;
  made.path = PathOf(made.digest);
  made.left_out = record->left_out;
  (void)utimensat(AT_FDCWD, made.path.c_str(), nullptr, 0);
  TY_ASSIGN_OR_RETURN(made.size, FileSize(made.path));
  made.origin = repository->Origin(made.diff);
  if (!made.origin.commit().empty() && record->has_untracked) made.origin.set_is_dirty(true);
  if (!made.is_from_cache) MakeRoom(made.path);
  return made;
}

void ArchiveCache::MakeRoom(const std::string& kept) const {
  struct Known {
    int64_t used_ns;
    int64_t size;
    std::string path;
  };
  const std::string folder = JoinPath(dir_, "archives");
  const auto names = ListDirectory(folder);
  if (!names.ok()) return;
  std::vector<Known> known;
  int64_t bytes = 0;
  for (const std::string& name : *names) {
    const std::string path = JoinPath(folder, name);
    const Stamp stamp = StampOf(path);
    bytes += stamp.size;
    if (path != kept) known.push_back({stamp.mtime_ns, stamp.size, path});
  }
  std::sort(known.begin(), known.end(),
            [](const Known& a, const Known& b) { return a.used_ns < b.used_ns; });
  for (const Known& oldest : known) {
    if (bytes <= kArchivesBytesMax) return;
    if (unlink(oldest.path.c_str()) == 0) bytes -= oldest.size;
  }
}

}  // namespace trainyard::code
