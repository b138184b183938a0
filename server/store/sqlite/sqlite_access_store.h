// Keeps users, projects and the audit log in a file of their own, with WAL and synchronous=FULL.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/store/access_store.h"

namespace trainyard::store {

// Opens the file, creates it if it does not exist, and migrates it if it is older. The errors are
// those of OpenSqliteStore. A file that is damaged is refused, because a server that forgets who
// may do what would give rights away.
absl::StatusOr<std::unique_ptr<AccessStore>> OpenSqliteAccessStore(const std::string& path);

}  // namespace trainyard::store
