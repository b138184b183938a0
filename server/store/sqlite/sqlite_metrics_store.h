// Keeps metric points in a file of their own, with WAL and synchronous=NORMAL. A power loss may
// undo the last points, but the offsets with them, so the worker sends them again.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/store/metrics_store.h"

namespace trainyard::store {

// Opens the store. The errors are those of OpenSqliteStore.
absl::StatusOr<std::unique_ptr<MetricsStore>> OpenSqliteMetricsStore(const std::string& path);

// Copies the store at `path` to a new file `copy`, which is durable when this returns.
absl::Status CopySqliteMetrics(const std::string& path, const std::string& copy);

}  // namespace trainyard::store
