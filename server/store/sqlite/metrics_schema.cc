// Defines the tables of metrics.db, version by version. A version is never edited, only followed by
// the next one.
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "server/store/sqlite/metric_rows.h"
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

// Points arrive into `points`, as before, and move in batches into chunks of one series each
// (metric_rows.h).
constexpr char kMetrics2[] = R"sql(
CREATE TABLE jobs (
  job INTEGER NOT NULL PRIMARY KEY,
  points INTEGER NOT NULL,
  packed_cursor INTEGER NOT NULL
) STRICT;

CREATE TABLE series (
  job INTEGER NOT NULL,
  name INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  points INTEGER NOT NULL,
  first_step INTEGER NOT NULL,
  last_step INTEGER NOT NULL,
  is_ascending INTEGER NOT NULL,
  first_cursor INTEGER NOT NULL,
  last_cursor INTEGER NOT NULL,
  PRIMARY KEY (job, name, attempt)
) STRICT, WITHOUT ROWID;

CREATE TABLE chunks (
  job INTEGER NOT NULL,
  name INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  first_cursor INTEGER NOT NULL,
  last_cursor INTEGER NOT NULL,
  points INTEGER NOT NULL,
  first_step INTEGER NOT NULL,
  last_step INTEGER NOT NULL,
  least REAL,
  greatest REAL,
  packed INTEGER NOT NULL,
  PRIMARY KEY (job, name, attempt, first_cursor)
) STRICT, WITHOUT ROWID;

CREATE TABLE packed_points (
  id INTEGER NOT NULL PRIMARY KEY,
  points BLOB NOT NULL
) STRICT;
)sql";

// The rows that are moved at a time: some MiB of memory.
constexpr int64_t kBatchRows = 50'000;
// The rows between two messages: some seconds of work.
constexpr int64_t kRowsBetweenMessages = 40 * kBatchRows;

constexpr char kNextJob[] = "SELECT job FROM points WHERE job > ? ORDER BY job LIMIT 1";
constexpr char kHasMany[] =
    "SELECT cursor FROM points WHERE job = ? ORDER BY cursor LIMIT 1 OFFSET ?";

absl::StatusOr<std::optional<int64_t>> FirstInt(Statement& statement) {
  TY_ASSIGN_OR_RETURN(const bool row, statement.Step());
  if (!row) return std::nullopt;
  const int64_t value = statement.Int(0);
  statement.Reset();
  return value;
}

absl::Status PackJob(Database& db, JobId job) {
  LogInfo("packing the metric points of a job, which an older server kept one by one",
          {{"file", db.path()}, {"job", JobName(job)}});
  int64_t packed = 0;
  while (true) {
    TY_ASSIGN_OR_RETURN(const int64_t rows, PackRows(db, job, kBatchRows, {}));
    packed += rows;
    if (rows < kBatchRows) break;
    if (packed % kRowsBetweenMessages == 0) {
      LogInfo("still packing", {{"job", JobName(job)}, {"points", absl::StrCat(packed)}});
    }
  }
  LogInfo("packed the points", {{"job", JobName(job)}, {"points", absl::StrCat(packed)}});
  return absl::OkStatus();
}

// Packs the jobs that have so many points that a server of this version would have packed them.
absl::Status PackOldPoints(Database& db) {
  for (int64_t last = 0;;) {
    TY_ASSIGN_OR_RETURN(const auto job, FirstInt(db.Prepared(kNextJob).Bind(last)));
    if (!job.has_value()) return absl::OkStatus();
    last = *job;
    Statement& many = db.Prepared(kHasMany).Bind(last).Bind(kUnpackedMax - 1);
    TY_ASSIGN_OR_RETURN(const auto has_many, FirstInt(many));
    if (has_many.has_value()) TY_RETURN_IF_ERROR(PackJob(db, JobId{last}));
  }
}

}  // namespace

const std::vector<Migration>& MetricsMigrations() {
  static const auto* migrations =
      new std::vector<Migration>{kMetrics1, Migration(kMetrics2, PackOldPoints, "")};
  return *migrations;
}

}  // namespace trainyard::store
