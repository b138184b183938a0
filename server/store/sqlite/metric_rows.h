// Maps metric points to rows of metrics.db.
//
// New points of a job are rows of `points`, in order of arrival, so that a small append touches one
// place of the file. When kUnpackedMax of them wait, all move into chunks. A chunk has up to
// kChunkPoints points of one series, which is one metric of one attempt, and its row tells between
// which steps and values they lie. So a series is read without any other, and most of it is known
// without its points.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "server/store/sqlite/database.h"
#include "server/store/sqlite/point_blob.h"
#include "server/store/sqlite/table.h"

namespace trainyard::store {

// A query looks at all points of the job that are not packed, so they must be few. Packing rewrites
// the last chunk of each series, so it should not happen for a few points.
inline constexpr int64_t kUnpackedMax = 2048;
// The packed points of a chunk fill a page of the file.
inline constexpr int64_t kChunkPoints = 256;
// The chunks that are deleted in one transaction, for which appends wait.
inline constexpr int64_t kDeletedChunksMax = 1000;

struct MetricJobRow {
  JobId job;
  int64_t points = 0;         // in chunks
  int64_t packed_cursor = 0;  // points after it are rows, and all others are in chunks
};

struct SeriesId {
  JobId job;
  int64_t name = 0;  // metric_names.id
  int32_t attempt = 0;
};

// Sums up all chunks of a series.
struct SeriesRow {
  SeriesId id;
  int64_t points = 0;
  int64_t first_step = 0;    // the lowest
  int64_t last_step = 0;     // the highest
  bool is_ascending = true;  // true if each point has a higher step than the one before it
  int64_t first_cursor = 0;
  int64_t last_cursor = 0;
};

struct ChunkRow {
  SeriesId series;
  int64_t first_cursor = 0;
  int64_t last_cursor = 0;
  int64_t points = 0;
  int64_t first_step = 0;  // the lowest
  int64_t last_step = 0;   // the highest
  double least = 0;        // NaN if no value is a number
  double greatest = 0;
  int64_t packed = 0;  // packed_points.id
};

// A row of `points`.
struct PointRow {
  SeriesId series;
  PackedPoint point;
};

const Table<MetricJobRow>& MetricJobs();
const Table<SeriesRow>& SeriesTable();
const Table<ChunkRow>& Chunks();
const Table<PointRow>& Points();

// Returns the row of the job. If there is none, all its numbers are 0.
absl::StatusOr<MetricJobRow> ReadMetricJob(Database& db, JobId job);

// Moves the oldest rows of a job, at most `limit`, into chunks, and after them `newer`, which is
// empty if rows are left. Returns the number of rows.
absl::StatusOr<int64_t> PackRows(Database& db, JobId job, int64_t limit,
                                 const std::vector<PointRow>& newer);

// Returns the points of a chunk, or CORRUPT_FILE if they are damaged.
absl::StatusOr<std::vector<PackedPoint>> ReadPacked(Database& db, const ChunkRow& chunk);

// Deletes at most kDeletedChunksMax of the chunks that `statement` selects, and returns the number.
absl::StatusOr<int64_t> DeleteChunks(Database& db, Statement& statement);

}  // namespace trainyard::store
