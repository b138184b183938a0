// The server's one file. WAL and synchronous=FULL: what Commit has acknowledged survives a loss of
// power. docs/store_format.md describes the tables.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/store/store.h"

namespace trainyard::store {

// Opens the file, makes it where there is none, and migrates it where it is older.
// FAILED_PRECONDITION (STORE_TOO_NEW) where a newer server wrote it; DATA_LOSS (CORRUPT_FILE) where
// it is no database or damaged; NOT_FOUND or PERMISSION_DENIED where it cannot be opened.
// The caller holds the lock of the directory: two processes must not share the file.
absl::StatusOr<std::unique_ptr<Store>> OpenSqliteStore(const std::string& path);

}  // namespace trainyard::store
