// Checks databases by SQLite and by their messages, and files by the hashes that name them.
#include "server/backup/check.h"

#include <functional>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/files.h"
#include "common/base/hash.h"
#include "common/base/status_macros.h"
#include "common/tls/file_digest.h"
#include "nlohmann/json.hpp"
#include "server/backup/manifest.h"
#include "server/store/sqlite/database.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::backup {
namespace {

// A disk that has lost a folder of checkpoints makes a finding for each file of it. Nobody reads
// more than so many.
constexpr int64_t kDamagesMax = 1'000;

// A file of a checkpoint as the database names it.
struct NamedFile {
  int64_t job = 0;
  int64_t step = 0;
  std::string name;
};

class Checker {
 public:
  explicit Checker(std::string directory) : directory_(std::move(directory)) {}

  void CheckManifest(const Manifest& manifest) {
    for (const auto& [name, entry] : manifest.files) {
      const std::string damage = DamageOf(directory_, name, entry);
      if (!damage.empty()) Tell(damage, "take the file from another snapshot");
    }
    Count("files of the manifest", static_cast<int64_t>(manifest.files.size()));
  }

  void CheckDatabase(const std::string& name) {
    const std::string path = JoinPath(directory_, name);
    if (!FileExists(path)) return;
    const absl::Status status = LookInto(name, path);
    if (!status.ok()) Tell(status.message(), "restore a snapshot");
    Count(name, 1);
  }

  void CheckArchives() {
    const std::string folder = JoinPath(directory_, "code/archives");
    if (!FileExists(folder)) return;
    const auto names = ListTree(folder, kFilesMax);
    if (!names.ok()) return Tell(names.status().message(), "look at the disk");
    for (const std::string& name : *names) {
      const auto hash = tls::Sha256OfFile(JoinPath(folder, name));
      if (absl::IsNotFound(hash.status())) continue;  // it was removed meanwhile
      if (!hash.ok() || *hash != absl::StrCat("sha256:", name)) {
        Tell(absl::StrCat("the code archive '", JoinPath(folder, name), "' has other bytes"),
             "restore it from a snapshot");
      }
    }
    Count("code archives", static_cast<int64_t>(names->size()));
  }

  // Files are read when no transaction is open any more: the write-ahead log of a server cannot
  // shrink while one is, and terabytes of checkpoints take hours.
  void CheckNamedFiles() {
    CheckLogs();
    CheckBlobs();
  }

  CheckResult Take() {
    if (told_ > kDamagesMax) {
      result_.damages.push_back(absl::StrCat("there is more damage, of which ", told_ - kDamagesMax,
                                             " findings are not shown; mend what is shown first"));
    }
    return std::move(result_);
  }

 private:
  void Count(const std::string& what, int64_t count) { result_.checked.push_back({what, count}); }
  void Tell(absl::string_view damage, absl::string_view remedy) {
    if (++told_ <= kDamagesMax) result_.damages.push_back(absl::StrCat(damage, "; ", remedy));
  }

  absl::Status LookInto(const std::string& name, const std::string& path) {
    TY_ASSIGN_OR_RETURN(auto db, store::Database::Open(path, store::Database::Mode::kReadOnly));
    store::Transaction moment(*db);
    TY_RETURN_IF_ERROR(moment.BeginRead());
    store::Statement& integrity = db->Prepared("PRAGMA integrity_check");
    while (true) {
      TY_ASSIGN_OR_RETURN(const bool row, integrity.Step());
      if (!row) break;
      if (integrity.Text(0) != "ok") {
        Tell(absl::StrCat("'", path, "': ", integrity.Text(0)), "restore a snapshot");
      }
    }
    store::Statement& keys = db->Prepared("PRAGMA foreign_key_check");
    while (true) {
      TY_ASSIGN_OR_RETURN(const bool row, keys.Step());
      if (!row) break;
      Tell(absl::StrCat("'", path, "': a row of ", keys.Text(0), " refers to a row of ",
                        keys.Text(2), " that is not there"),
           "restore a snapshot");
    }
    if (name != "trainyard.db") return absl::OkStatus();
    TY_RETURN_IF_ERROR(CheckMessages(*db));
    TY_RETURN_IF_ERROR(ListLogs(*db));
    return ListBlobs(*db);
  }

  absl::Status CheckMessages(store::Database& db) {
    int64_t count = 0;
    store::Statement& rows =
        db.Prepared("SELECT id, spec, resolved_spec, options FROM submissions");
    while (true) {
      TY_ASSIGN_OR_RETURN(const bool row, rows.Step());
      if (!row) break;
      count += 3;
      v1::JobSpec spec;
      v1::Job options;
      if (!spec.ParseFromString(rows.Blob(1)) || !spec.ParseFromString(rows.Blob(2)) ||
          !options.ParseFromString(rows.Blob(3))) {
        Tell(absl::StrCat("the spec of jobs/", rows.Int(0), " cannot be read"),
             "restore a snapshot, or delete the job with `trainyard rm`");
      }
    }
    store::Statement& jobs = db.Prepared("SELECT job, progress FROM jobs");
    while (true) {
      TY_ASSIGN_OR_RETURN(const bool row, jobs.Step());
      if (!row) break;
      ++count;
      v1::Progress progress;
      if (!progress.ParseFromString(jobs.Blob(1))) {
        Tell(absl::StrCat("the progress of jobs/", jobs.Int(0), " cannot be read"),
             "restore a snapshot, or delete the job with `trainyard rm`");
      }
    }
    Count("messages", count);
    return absl::OkStatus();
  }

  absl::Status ListLogs(store::Database& db) {
    store::Statement& rows = db.Prepared(
        "SELECT job FROM jobs WHERE state = 'SUCCEEDED' AND logs_deleted = 0 ORDER BY job");
    while (true) {
      TY_ASSIGN_OR_RETURN(const bool row, rows.Step());
      if (!row) return absl::OkStatus();
      jobs_with_logs_.push_back(rows.Int(0));
    }
  }

  absl::Status ListBlobs(store::Database& db) {
    store::Statement& rows =
        db.Prepared("SELECT job, step, name, hash FROM checkpoint_files ORDER BY job, step, name");
    while (true) {
      TY_ASSIGN_OR_RETURN(const bool row, rows.Step());
      if (!row) return absl::OkStatus();
      blobs_.try_emplace(rows.Text(3), NamedFile{rows.Int(0), rows.Int(1), rows.Text(2)});
    }
  }

  // A rank that wrote nothing has no log, so the folder of a job that has run is all that must be
  // there.
  void CheckLogs() {
    for (const int64_t job : jobs_with_logs_) {
      const std::string folder = JoinPath(directory_, absl::StrCat("logs/", job));
      // The server may have deleted them since this moment of the database.
      if (FileExists(folder) || !HasLogsStill(job)) continue;
      Tell(absl::StrCat("jobs/", job, " has no logs in '", folder, "'"),
           "restore that folder from a snapshot");
    }
    Count("logs of jobs that succeeded", static_cast<int64_t>(jobs_with_logs_.size()));
  }

  void CheckBlobs() {
    for (const auto& [hash, file] : blobs_) {
      const auto name = BlobName(hash);
      const std::string path = name.ok() ? JoinPath(directory_, *name) : "";
      const auto found = name.ok() ? FileHash(path) : name;
      if (found.ok() && *found == hash) continue;
      // The server may have deleted the checkpoint since this moment of the database.
      if (absl::IsNotFound(found.status()) && !IsNamedStill(hash)) continue;
      Tell(absl::StrCat("'", file.name, "' of jobs/", file.job, "/checkpoints/", file.step, ": ",
                        found.ok() ? absl::StrCat("'", path, "' has other bytes")
                                   : std::string(found.status().message())),
           "restore the file from a snapshot, then run `trainyard checkpoints verify`");
    }
    Count("checkpoint files", static_cast<int64_t>(blobs_.size()));
  }

  bool HasLogsStill(int64_t job) {
    return IsThereStill([job](store::Database& db) -> store::Statement& {
      return db.Prepared("SELECT 1 FROM jobs WHERE job = ? AND logs_deleted = 0").Bind(job);
    });
  }
  bool IsNamedStill(const std::string& hash) {
    return IsThereStill([&hash](store::Database& db) -> store::Statement& {
      return db.Prepared("SELECT 1 FROM checkpoint_files WHERE hash = ? LIMIT 1").Bind(hash);
    });
  }
  // Asks the database as it is now. Returns true also if it cannot be asked.
  bool IsThereStill(const std::function<store::Statement&(store::Database&)>& question) {
    const auto db = store::Database::Open(JoinPath(directory_, "trainyard.db"),
                                          store::Database::Mode::kReadOnly);
    if (!db.ok()) return true;
    store::Statement& rows = question(**db);
    const auto row = rows.Step();
    rows.Reset();
    return !row.ok() || *row;
  }

  const std::string directory_;
  CheckResult result_;
  int64_t told_ = 0;
  std::vector<int64_t> jobs_with_logs_;
  std::map<std::string, NamedFile> blobs_;  // by hash
};

}  // namespace

absl::StatusOr<CheckResult> Check(const std::string& directory) {
  if (!FileExists(JoinPath(directory, "trainyard.db"))) {
    return absl::NotFoundError(absl::StrCat(
        "'", directory, "' has no trainyard.db; name a state directory or a snapshot"));
  }
  // Another user would leave files beside the databases that the server cannot open.
  TY_RETURN_IF_ERROR(CheckPrivateDirectory(directory));
  Checker checker(directory);
  if (FileExists(JoinPath(directory, kManifestName))) {
    TY_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(directory));
    checker.CheckManifest(manifest);
  }
  for (const char* name : kDatabases) checker.CheckDatabase(name);
  checker.CheckNamedFiles();
  checker.CheckArchives();
  return checker.Take();
}

std::string TableOf(const CheckResult& result) {
  std::string text = absl::StrFormat("%-30s %10s\n", "CHECKED", "COUNT");
  for (const Checked& one : result.checked) {
    absl::StrAppendFormat(&text, "%-30s %10d\n", one.what, one.count);
  }
  for (const std::string& damage : result.damages) absl::StrAppend(&text, "damage: ", damage, "\n");
  if (result.damages.empty()) absl::StrAppend(&text, "No damage was found.\n");
  return text;
}

std::string JsonOf(const CheckResult& result) {
  nlohmann::json checked = nlohmann::json::array();
  for (const Checked& one : result.checked) {
    checked.push_back({{"what", one.what}, {"count", one.count}});
  }
  const nlohmann::json json = {{"checked", checked}, {"damages", result.damages}};
  return absl::StrCat(json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace), "\n");
}

}  // namespace trainyard::backup
