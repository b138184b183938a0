// Keeps the server's records in one file, with WAL and synchronous=FULL: what Commit has
// acknowledged survives a power loss. docs/store_format.md describes the tables.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/store/store.h"

namespace trainyard::store {

// Beside the database, this file says how far it was committed (high_water_mark.h).
inline constexpr absl::string_view kCommittedSuffix = "-committed";

struct SqliteStoreOptions {
  // Goes on with a database that has lost commits. No number of a lost job is given out again.
  bool accept_lost_commits = false;
};

// Opens the file, creates it if it does not exist, and migrates it if it is older. Returns
// FAILED_PRECONDITION (STORE_TOO_NEW) if a newer server wrote it, DATA_LOSS (CORRUPT_FILE) if it is
// no database or damaged, DATA_LOSS (COMMITS_LOST) if it is older than it was, and NOT_FOUND or
// PERMISSION_DENIED if it cannot be opened. The caller must hold the lock of the directory, since
// two processes must not share the file.
absl::StatusOr<std::unique_ptr<Store>> OpenSqliteStore(const std::string& path,
                                                       const SqliteStoreOptions& options = {});

// Moves the counters of a database that nobody has open to those of the mark in `mark_path`, if
// that is readable and ahead of it, so that what was given out after the copy is not given out
// again.
absl::Status SkipGivenNumbers(const std::string& path, const std::string& mark_path);

}  // namespace trainyard::store
