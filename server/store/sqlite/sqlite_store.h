// Keeps the server's records in one file, with WAL and synchronous=FULL: what Commit has
// acknowledged survives a power loss. docs/store_format.md describes the tables.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/store/store.h"

namespace trainyard::store {

// Opens the file, creates it if it does not exist, and migrates it if it is older. Returns
// FAILED_PRECONDITION (STORE_TOO_NEW) if a newer server wrote it, DATA_LOSS (CORRUPT_FILE) if it is
// no database or damaged, and NOT_FOUND or PERMISSION_DENIED if it cannot be opened. The caller
// must hold the lock of the directory, since two processes must not share the file.
absl::StatusOr<std::unique_ptr<Store>> OpenSqliteStore(const std::string& path);

}  // namespace trainyard::store
