// Brings a file to the newest version. Migrations are numbered from 1 by their position, and never
// edited, so that a file of every old version can be opened forever.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/store/sqlite/database.h"

namespace trainyard::store {

// One step from a version to the next, in one transaction: first statements, then what only the
// program can do, then statements again.
struct Migration {
  // NOLINTNEXTLINE(google-explicit-constructor): most migrations are only statements
  Migration(absl::string_view statements) : sql(statements) {}
  Migration(const char* statements) : sql(statements) {}  // NOLINT(google-explicit-constructor)
  Migration(absl::string_view statements, absl::Status (*fill_in)(Database&),
            absl::string_view end_statements)
      : sql(statements), fill(fill_in), end(end_statements) {}

  absl::string_view sql;
  absl::Status (*fill)(Database&) = nullptr;
  absl::string_view end;
};

// Runs the missing migrations. A file that has been used is first copied to <path>.version-<N>,
// from which the program that wrote it could go on; the copy of an older version is removed. `kind`
// keeps the files apart: "state", "metrics", "access" and so on. Returns FAILED_PRECONDITION
// (STORE_TOO_NEW) if the file is newer than the last migration, and DATA_LOSS (CORRUPT_FILE) if it
// is something else.
absl::Status Migrate(Database& db, absl::string_view kind,
                     const std::vector<Migration>& migrations);

const std::vector<Migration>& StateMigrations();
const std::vector<Migration>& MetricsMigrations();
const std::vector<Migration>& AccessMigrations();
const std::vector<Migration>& SecretMigrations();
const std::vector<Migration>& NotifyMigrations();
const std::vector<Migration>& SpecMigrations();
const std::vector<Migration>& RemarkMigrations();
const std::vector<Migration>& SweepMigrations();

}  // namespace trainyard::store
