// The part of a migration of state.db that SQL cannot do.
#pragma once

#include "absl/status/status.h"
#include "server/store/sqlite/database.h"

namespace trainyard::store {

// Fills submissions_5 from the tables of version 4, and jobs_5.progress from its columns. DATA_LOSS
// where a row is not what version 4 wrote.
absl::Status FillVersion5(Database& db);

}  // namespace trainyard::store
