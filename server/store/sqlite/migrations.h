// Brings a file to the newest version. Migrations are numbered from 1 by their place, and never
// edited: a file of every old version opens for ever.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/store/sqlite/database.h"

namespace trainyard::store {

// `kind` keeps the two files apart: "state", "metrics". FAILED_PRECONDITION (STORE_TOO_NEW) where
// the file is newer than the last migration; DATA_LOSS (CORRUPT_FILE) where it is something else.
absl::Status Migrate(Database& db, absl::string_view kind,
                     const std::vector<absl::string_view>& migrations);

const std::vector<absl::string_view>& StateMigrations();
const std::vector<absl::string_view>& MetricsMigrations();

}  // namespace trainyard::store
