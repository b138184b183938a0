// Runs the migrations that a file has not seen yet, each in a transaction of its own.
#include "server/store/sqlite/migrations.h"

#include <unistd.h>

#include <filesystem>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"

namespace trainyard::store {
namespace {

constexpr char kCopySuffix[] = ".version-";
constexpr char kVersionTable[] = R"sql(
CREATE TABLE schema_version (
  version INTEGER NOT NULL PRIMARY KEY,
  kind TEXT NOT NULL
) STRICT;
)sql";

constexpr char kCountTables[] = "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name";
constexpr char kReadVersion[] = "SELECT version, kind FROM schema_version ORDER BY version";
constexpr char kWriteVersion[] = "INSERT INTO schema_version (version, kind) VALUES (?, ?)";

// Returns the version of the file, or 0 if it is empty.
absl::StatusOr<int64_t> ReadVersion(Database& db, absl::string_view kind) {
  bool has_tables = false;
  bool has_version = false;
  Statement& tables = db.Prepared(kCountTables);
  while (true) {
    TY_ASSIGN_OR_RETURN(const bool row, tables.Step());
    if (!row) break;
    has_tables = true;
    has_version = has_version || tables.Text(0) == "schema_version";
  }
  if (!has_tables) return 0;
  if (!has_version) return error::CorruptFile(db.path(), "it is a database of another program");
  int64_t version = 0;
  Statement& versions = db.Prepared(kReadVersion);
  while (true) {
    TY_ASSIGN_OR_RETURN(const bool row, versions.Step());
    if (!row) break;
    version = versions.Int(0);
    const std::string found = versions.Text(1);
    if (found != kind) {
      versions.Reset();
      return error::CorruptFile(
          db.path(), absl::StrCat("it is a ", found, " store, expected a ", kind, " store"));
    }
  }
  return version;
}

absl::Status CheckReferences(Database& db) {
  Statement& check = db.Prepared("PRAGMA foreign_key_check");
  TY_ASSIGN_OR_RETURN(const bool row, check.Step());
  if (!row) return absl::OkStatus();
  const std::string table = check.Text(0);
  check.Reset();
  return error::CorruptFile(db.path(),
                            absl::StrCat("a row of ", table, " refers to one that is not there"));
}

// Keeps the file as it is, beside it, and removes the copy of an older version. A copy that was cut
// off is made again, as the file is not changed before it is whole.
absl::Status KeepCopy(Database& db, int64_t version) {
  const std::filesystem::path file(db.path());
  const std::string copies = absl::StrCat(file.filename().string(), kCopySuffix);
  const std::string copy = absl::StrCat(copies, version);
  const std::string folder = file.has_parent_path() ? file.parent_path().string() : ".";
  TY_RETURN_IF_ERROR(
      Annotate(db.CopyTo(JoinPath(folder, copy)),
               absl::StrCat("the store '", db.path(), "' needs a copy before it is changed")));
  TY_RETURN_IF_ERROR(SyncDirectory(folder));
  TY_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(folder));
  for (const std::string& name : names) {
    if (absl::StartsWith(name, copies) && name != copy) unlink(JoinPath(folder, name).c_str());
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Migrate(Database& db, absl::string_view kind,
                     const std::vector<Migration>& migrations) {
  TY_ASSIGN_OR_RETURN(const int64_t version, ReadVersion(db, kind));
  const auto newest = static_cast<int64_t>(migrations.size());
  if (version > newest) return error::StoreTooNew(db.path(), version, newest);
  if (version == newest) return absl::OkStatus();
  if (version > 0) {
    LogInfo("bringing a store to a newer version",
            {{"file", db.path()}, {"from", absl::StrCat(version)}, {"to", absl::StrCat(newest)}});
    TY_RETURN_IF_ERROR(KeepCopy(db, version));
  }
  // A migration may replace a table by another, as long as all references are valid in the end.
  TY_RETURN_IF_ERROR(db.Execute("PRAGMA foreign_keys = OFF"));
  for (int64_t next = version + 1; next <= newest; ++next) {
    Transaction transaction(db);
    TY_RETURN_IF_ERROR(transaction.Begin());
    if (next == 1) TY_RETURN_IF_ERROR(db.Execute(kVersionTable));
    const Migration& migration = migrations[static_cast<size_t>(next - 1)];
    TY_RETURN_IF_ERROR(db.Execute(std::string(migration.sql)));
    if (migration.fill != nullptr) TY_RETURN_IF_ERROR(migration.fill(db));
    TY_RETURN_IF_ERROR(db.Execute(std::string(migration.end)));
    TY_RETURN_IF_ERROR(db.Prepared(kWriteVersion).Bind(next).Bind(kind).Run());
    TY_RETURN_IF_ERROR(CheckReferences(db));
    TY_RETURN_IF_ERROR(transaction.Commit());
  }
  return db.Execute("PRAGMA foreign_keys = ON");
}

}  // namespace trainyard::store
