// A database names files that were there before it did. So files are copied first, then the
// databases, then the files that have come or changed in between. A file that the copies name was
// there at their moment: either it was copied before, or it is new and the second pass, which is
// short, finds it, unless the server has deleted it meanwhile. Then the databases, which name it no
// more, are copied again. Files that nothing names do no harm: a server moves them to orphans/ when
// it starts.
#include "server/backup/backup.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "common/base/version.h"
#include "common/tls/file_digest.h"
#include "server/backup/folder_lock.h"
#include "server/backup/manifest.h"
#include "server/store/sqlite/database.h"

namespace trainyard::backup {
namespace {

constexpr char kPartial[] = ".partial";
// A file that is missing after so many copies of the databases was not deleted, but is lost.
constexpr int kRounds = 3;
// Beside these, a state directory has databases, locks, sockets and uploads that begin again.
constexpr const char* kFolders[] = {"blobs", "logs", "code/archives", "tls"};

// A file system tells times that are some milliseconds apart, so a write that follows soon may show
// no other time.
constexpr int64_t kSettledNs = 1'000'000'000;

// Looks at a database. Returns nothing if it was written to just now, and may be so again unseen.
std::optional<CopiedDatabases::Look> LookAtDatabase(const std::string& path) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  const int64_t settled_ns = now.tv_sec * 1'000'000'000 + now.tv_nsec - kSettledNs;
  const auto database = Look(path);
  const auto log = Look(absl::StrCat(path, "-wal"));
  if (!database.ok() || (!log.ok() && !absl::IsNotFound(log.status()))) return std::nullopt;
  CopiedDatabases::Look look{database->size, database->mtime_ns};
  if (log.ok()) {
    look.log_size = log->size;
    look.log_mtime_ns = log->mtime_ns;
  }
  if (std::max(look.mtime_ns, look.log_mtime_ns) > settled_ns) return std::nullopt;
  return look;
}

class Copier {
 public:
  Copier(const BackupOptions& options, std::string partial, BackupResult& result)
      : options_(options), partial_(std::move(partial)), result_(result) {}

  // Files are linked to the newest snapshot that can be read. `snapshots` begins with the oldest.
  void LinkToOneOf(const std::vector<std::string>& snapshots) {
    for (auto name = snapshots.rbegin(); name != snapshots.rend(); ++name) {
      const std::string path = JoinPath(options_.directory, *name);
      auto manifest = ReadManifest(path);
      if (manifest.ok()) {
        before_ = *std::move(manifest);
        before_path_ = path;
        return;
      }
      result_.unreadable.emplace_back(manifest.status().message());
    }
  }

  absl::Status CopyFiles() {
    for (const char* folder : kFolders) {
      const std::string path = JoinPath(options_.state_dir, folder);
      if (!FileExists(path)) continue;
      TY_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListTree(path, kFilesMax));
      for (const std::string& name : names) TY_RETURN_IF_ERROR(Take(JoinPath(folder, name)));
    }
    return FileExists(JoinPath(options_.state_dir, "secrets.key")) ? Take("secrets.key")
                                                                   : absl::OkStatus();
  }

  absl::Status CopyDatabases() {
    for (const std::string name : kDatabases) {
      const std::string from = JoinPath(options_.state_dir, name);
      if (!FileExists(from)) continue;
      const auto look = LookAtDatabase(from);
      if (look.has_value() && IsUnchanged(name, *look) && LinkDatabase(name)) continue;
      if (look.has_value()) {
        looks_[name] = *look;
      } else {
        looks_.erase(name);
      }
      TY_ASSIGN_OR_RETURN(auto db, store::Database::Open(from, store::Database::Mode::kReadOnly));
      const std::string raw = JoinPath(partial_, name + ".raw");
      TY_RETURN_IF_ERROR(db->CopyTo(raw));
      const std::string to = JoinPath(partial_, name);
      TY_RETURN_IF_ERROR(Check(raw));
      if (rename(raw.c_str(), to.c_str()) != 0) return ErrnoStatus(errno, "cannot rename", raw);
      TY_RETURN_IF_ERROR(Seal(name, to));
    }
    return absl::OkStatus();
  }

  // Returns the checkpoint files that the copy of trainyard.db names and the snapshot does not
  // have.
  absl::StatusOr<std::vector<std::string>> Missing() const {
    TY_ASSIGN_OR_RETURN(auto db, store::Database::Open(JoinPath(partial_, "trainyard.db"),
                                                       store::Database::Mode::kReadOnly));
    std::vector<std::string> missing;
    store::Statement& rows =
        db->Prepared("SELECT DISTINCT hash FROM checkpoint_files ORDER BY hash");
    while (true) {
      TY_ASSIGN_OR_RETURN(const bool row, rows.Step());
      if (!row) return missing;
      const auto name = BlobName(rows.Text(0));
      // A damaged row names nothing; `check` tells of it.
      if (name.ok() && !manifest_.files.contains(*name)) missing.push_back(*name);
    }
  }

  Manifest& manifest() { return manifest_; }
  // Returns how the databases were before they were copied; without those that change all the time.
  std::map<std::string, CopiedDatabases::Look>& looks() { return looks_; }

 private:
  // Returns true if the copy in the snapshot before was made of the database as it is.
  bool IsUnchanged(const std::string& name, const CopiedDatabases::Look& look) const {
    if (options_.databases == nullptr || options_.databases->snapshot != before_path_) return false;
    const auto known = options_.databases->looks.find(name);
    return known != options_.databases->looks.end() && known->second == look;
  }

  // Returns false if the snapshot before does not have it any more.
  bool LinkDatabase(const std::string& name) {
    if (looks_.contains(name)) return true;  // an earlier round has linked or copied it
    const auto old = before_.files.find(name);
    if (old == before_.files.end() || !CheckSize(before_path_, name, old->second).ok())
      return false;
    const std::string to = JoinPath(partial_, name);
    if (link(JoinPath(before_path_, name).c_str(), to.c_str()) != 0) return false;
    looks_[name] = options_.databases->looks.at(name);
    manifest_.files[name] = old->second;
    if (name == "trainyard.db") manifest_.revision = before_.revision;
    ++result_.linked;
    return true;
  }

  // Links or copies one file, unless the snapshot has it already as it is.
  absl::Status Take(const std::string& name) {
    const std::string from = JoinPath(options_.state_dir, name);
    const auto now = Look(from);
    // It was deleted after it was listed.
    if (absl::IsNotFound(now.status())) return absl::OkStatus();
    TY_RETURN_IF_ERROR(now.status());
    const auto same = [&now](const FileEntry& other) {
      return other.size == now->size && other.mtime_ns == now->mtime_ns && other.mode == now->mode;
    };
    const auto taken = manifest_.files.find(name);
    if (taken != manifest_.files.end() && same(taken->second)) return absl::OkStatus();
    const std::string to = JoinPath(partial_, name);
    const auto old = before_.files.find(name);
    if (taken == manifest_.files.end() && old != before_.files.end() && same(old->second)) {
      TY_RETURN_IF_ERROR(MakeDirectories(to.substr(0, to.rfind('/')), 0700));
      // A file that somebody has cut there must not be handed on from snapshot to snapshot.
      if (CheckSize(before_path_, name, old->second).ok() &&
          link(JoinPath(before_path_, name).c_str(), to.c_str()) == 0) {
        manifest_.files[name] = old->second;
        ++result_.linked;
        return absl::OkStatus();
      }
    }
    auto entry =
        IsNamedByHash(name) && options_.shares_files ? ShareFile(from, to) : CopyFile(from, to);
    if (absl::IsNotFound(entry.status())) return absl::OkStatus();
    TY_RETURN_IF_ERROR(entry.status());
    manifest_.files[name] = *std::move(entry);
    ++result_.copied;
    return absl::OkStatus();
  }

  static bool IsNamedByHash(const std::string& name) {
    return absl::StartsWith(name, "blobs/") || absl::StartsWith(name, "code/archives/");
  }

  // Links a file if that is possible, and copies it if not. Returns what CopyFile returns.
  static absl::StatusOr<FileEntry> ShareFile(const std::string& from, const std::string& to) {
    TY_RETURN_IF_ERROR(MakeDirectories(to.substr(0, to.rfind('/')), 0700));
    if (link(from.c_str(), to.c_str()) != 0) return CopyFile(from, to);
    TY_ASSIGN_OR_RETURN(FileEntry entry, Look(to));
    TY_ASSIGN_OR_RETURN(entry.sha256, tls::Sha256OfFile(to));
    return entry;
  }

  // A copy of a damaged database is no backup, and must not push out whole ones.
  static absl::Status Check(const std::string& copy) {
    TY_ASSIGN_OR_RETURN(auto db, store::Database::Open(copy, store::Database::Mode::kReadOnly));
    store::Statement& check = db->Prepared("PRAGMA quick_check(1)");
    TY_ASSIGN_OR_RETURN(const bool row, check.Step());
    const std::string text = row ? check.Text(0) : "no answer";
    check.Reset();
    if (text == "ok") return absl::OkStatus();
    return absl::DataLossError(absl::StrCat(
        "the copy '", copy, "' is damaged: ", text,
        "; look at the disk and at the database in the state directory. Older snapshots stay"));
  }

  absl::Status Seal(const std::string& name, const std::string& path) {
    if (name == "trainyard.db") {
      TY_ASSIGN_OR_RETURN(auto db, store::Database::Open(path, store::Database::Mode::kReadOnly));
      store::Statement& meta = db->Prepared("SELECT revision FROM meta");
      TY_ASSIGN_OR_RETURN(const bool row, meta.Step());
      if (row) manifest_.revision = meta.Int(0);
      meta.Reset();
    }
    if (chmod(path.c_str(), 0600) != 0) return ErrnoStatus(errno, "cannot set the mode of", path);
    TY_ASSIGN_OR_RETURN(FileEntry entry, Look(path));
    TY_ASSIGN_OR_RETURN(entry.sha256, tls::Sha256OfFile(path));
    // The databases may be copied several times.
    if (manifest_.files.insert_or_assign(name, entry).second) ++result_.copied;
    return absl::OkStatus();
  }

  const BackupOptions& options_;
  const std::string partial_;
  BackupResult& result_;
  std::string before_path_;
  Manifest before_;
  Manifest manifest_;
  std::map<std::string, CopiedDatabases::Look> looks_;
};

absl::Status Fill(const BackupOptions& options, const std::string& partial,
                  const std::vector<std::string>& old, BackupResult& result,
                  CopiedDatabases& databases) {
  Copier copier(options, partial, result);
  copier.LinkToOneOf(old);
  TY_RETURN_IF_ERROR(copier.CopyFiles());
  for (int round = 1; round == 1 || (round <= kRounds && !result.lost.empty()); ++round) {
    if (options.before_databases) options.before_databases();
    TY_RETURN_IF_ERROR(copier.CopyDatabases());
    if (options.after_databases) options.after_databases();
    TY_RETURN_IF_ERROR(copier.CopyFiles());
    TY_ASSIGN_OR_RETURN(result.lost, copier.Missing());
  }
  copier.manifest().server_version = Version();
  copier.manifest().time = absl::FormatTime(absl::RFC3339_sec, options.now, absl::UTCTimeZone());
  TY_RETURN_IF_ERROR(WriteManifest(partial, copier.manifest()));
  databases = {result.snapshot, std::move(copier.looks())};
  return options.is_synced ? SyncFileSystem(partial) : absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ListSnapshots(const std::string& directory) {
  TY_ASSIGN_OR_RETURN(std::vector<std::string> names, ListDirectory(directory));
  std::erase_if(names, [&directory](const std::string& name) {
    absl::Time time;
    std::string error;
    return !absl::ParseTime("%E4Y%m%dT%H%M%SZ", name, &time, &error) ||
           !FileExists(JoinPath(JoinPath(directory, name), kManifestName));
  });
  return names;
}

absl::StatusOr<DirectoryLock> LockSnapshots(const BackupOptions& options) {
  if (!FileExists(JoinPath(options.state_dir, "trainyard.db"))) {
    return absl::NotFoundError(absl::StrCat("'", options.state_dir,
                                            "' has no trainyard.db; name the server's state "
                                            "directory with --state_dir"));
  }
  return LockFolder(options.directory, options.state_dir);
}

absl::StatusOr<BackupResult> Backup(const BackupOptions& options, const DirectoryLock& /*lock*/) {
  // Another user would leave files beside the databases that the server cannot open.
  TY_RETURN_IF_ERROR(CheckPrivateDirectory(options.state_dir));
  TY_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(options.directory));
  for (const std::string& name : names) {
    // A backup that was killed has left it, and nobody can use it.
    if (absl::EndsWith(name, kPartial)) {
      TY_RETURN_IF_ERROR(RemoveTree(JoinPath(options.directory, name)));
    }
  }
  TY_ASSIGN_OR_RETURN(std::vector<std::string> snapshots, ListSnapshots(options.directory));
  // The names are in the order of the snapshots, also of two in a second.
  std::string name;
  BackupResult result;
  for (absl::Time time = options.now; name.empty() || FileExists(result.snapshot);
       time += absl::Seconds(1)) {
    name = absl::FormatTime("%Y%m%dT%H%M%SZ", time, absl::UTCTimeZone());
    result.snapshot = JoinPath(options.directory, name);
  }
  const std::string partial = absl::StrCat(result.snapshot, kPartial);
  TY_RETURN_IF_ERROR(MakeDirectories(partial, 0700));
  CopiedDatabases databases;
  absl::Status filled = Fill(options, partial, snapshots, result, databases);
  if (filled.ok() && rename(partial.c_str(), result.snapshot.c_str()) != 0) {
    filled = ErrnoStatus(errno, "cannot rename", partial);
  }
  if (!filled.ok()) {
    RemoveTree(partial).IgnoreError();  // the next backup removes it otherwise
    return filled;
  }
  if (options.databases != nullptr) *options.databases = std::move(databases);
  TY_RETURN_IF_ERROR(SyncDirectory(options.directory));
  snapshots.push_back(name);
  while (options.keep > 0 && result.lost.empty() &&
         snapshots.size() > static_cast<size_t>(options.keep)) {
    TY_RETURN_IF_ERROR(RemoveTree(JoinPath(options.directory, snapshots.front())));
    result.removed.push_back(snapshots.front());
    snapshots.erase(snapshots.begin());
  }
  return result;
}

}  // namespace trainyard::backup
