// Metric points in a file of their own. WAL and synchronous=NORMAL: a loss of power may take the
// last points, and the offsets with them, so the worker sends them again.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/store/metrics_store.h"

namespace trainyard::store {

// Errors as OpenSqliteStore.
absl::StatusOr<std::unique_ptr<MetricsStore>> OpenSqliteMetricsStore(const std::string& path);

}  // namespace trainyard::store
