// Reads series and pages of points from metrics.db. Each call must run in a transaction, so that
// chunks and points that are not packed yet belong together.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/store/metrics_store.h"
#include "server/store/sqlite/database.h"

namespace trainyard::store {

// Implements MetricsStore::Query.
absl::StatusOr<MetricSeries> QuerySeries(Database& db, JobId job,
                                         const std::vector<std::string>& names,
                                         const PointChoice& choice);

// Implements MetricsStore::ReadAfter. `limit` lies between 0 and kMetricPageMax.
absl::StatusOr<MetricPage> ReadPage(Database& db, JobId job, const std::vector<std::string>& names,
                                    int64_t cursor, int64_t limit);

}  // namespace trainyard::store
