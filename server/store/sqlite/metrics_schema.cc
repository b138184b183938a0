// Defines the tables of metrics.db, version by version. A version is never edited, only followed by
// the next one.
#include "server/store/sqlite/migrations.h"

namespace trainyard::store {
namespace {

constexpr char kMetrics1[] = R"sql(
CREATE TABLE metric_names (
  id INTEGER NOT NULL PRIMARY KEY,
  name TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE points (
  job INTEGER NOT NULL,
  cursor INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  name INTEGER NOT NULL,
  step INTEGER NOT NULL,
  value REAL,
  time_us INTEGER NOT NULL,
  PRIMARY KEY (job, cursor)
) STRICT, WITHOUT ROWID;

CREATE TABLE offsets (
  job INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  rank INTEGER NOT NULL,
  next_offset INTEGER NOT NULL,
  PRIMARY KEY (job, attempt, rank)
) STRICT, WITHOUT ROWID;
)sql";

}  // namespace

const std::vector<Migration>& MetricsMigrations() {
  static const auto* migrations = new std::vector<Migration>{kMetrics1};
  return *migrations;
}

}  // namespace trainyard::store
