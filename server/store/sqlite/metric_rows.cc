// Reads and writes the rows of series, chunks and points.
#include "server/store/sqlite/metric_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"

namespace trainyard::store {
namespace {

constexpr char kOldestRows[] = "WHERE job = ? ORDER BY cursor LIMIT ?";
constexpr char kDeleteRows[] = "DELETE FROM points WHERE job = ? AND cursor <= ?";
constexpr char kAddPacked[] = "INSERT INTO packed_points (points) VALUES (?) RETURNING id";
constexpr char kChangePacked[] = "UPDATE packed_points SET points = ? WHERE id = ?";
constexpr char kReadPacked[] = "SELECT points FROM packed_points WHERE id = ?";
constexpr char kDeletePacked[] = "DELETE FROM packed_points WHERE id = ?";

// Sums up `points` in `row`, which has its key and its packed points already.
void Describe(const std::vector<PackedPoint>& points, ChunkRow& row) {
  row.last_cursor = points.back().cursor;
  row.points = static_cast<int64_t>(points.size());
  row.first_step = row.last_step = points.front().step;
  row.least = row.greatest = std::numeric_limits<double>::quiet_NaN();
  for (const PackedPoint& point : points) {
    row.first_step = std::min(row.first_step, point.step);
    row.last_step = std::max(row.last_step, point.step);
    row.least = std::fmin(row.least, point.value);
    row.greatest = std::fmax(row.greatest, point.value);
  }
}

absl::StatusOr<int64_t> AddPacked(Database& db, const std::string& bytes) {
  Statement& insert = db.Prepared(kAddPacked).BindBlob(bytes);
  TY_ASSIGN_OR_RETURN(bool row, insert.Step());
  const int64_t id = row ? insert.Int(0) : 0;
  while (row) {
    TY_ASSIGN_OR_RETURN(row, insert.Step());
  }
  return id;
}

// Returns the newest chunk of the series if it has room for points.
absl::StatusOr<std::optional<ChunkRow>> FindOpenChunk(Database& db, const SeriesId& id) {
  std::optional<ChunkRow> chunk;
  Statement& newest = Chunks().Select(
      db, "WHERE job = ? AND name = ? AND attempt = ? ORDER BY first_cursor DESC LIMIT 1");
  newest.Bind(id.job.value).Bind(id.name).Bind(id.attempt);
  TY_RETURN_IF_ERROR(Chunks().Read(newest, [&](const ChunkRow& row) {
    if (row.points < kChunkPoints) chunk = row;
    return absl::OkStatus();
  }));
  return chunk;
}

absl::Status WriteChunk(Database& db, const SeriesId& id, const std::vector<PackedPoint>& points) {
  ChunkRow chunk;
  chunk.series = id;
  chunk.first_cursor = points.front().cursor;
  Describe(points, chunk);
  TY_ASSIGN_OR_RETURN(chunk.packed, AddPacked(db, EncodePoints(points)));
  return Chunks().Insert(db, chunk);
}

absl::Status ExtendChunk(Database& db, ChunkRow chunk, const std::vector<PackedPoint>& points) {
  Describe(points, chunk);
  const std::string bytes = EncodePoints(points);
  TY_RETURN_IF_ERROR(db.Prepared(kChangePacked).BindBlob(bytes).Bind(chunk.packed).Run());
  return Chunks().Update(db, chunk);
}

// Notes in the row of the series that `points` come after what it has.
absl::Status NoteInSeries(Database& db, const SeriesId& id,
                          const std::vector<PackedPoint>& points) {
  SeriesRow row;
  Statement& select = SeriesTable().Select(db, "WHERE job = ? AND name = ? AND attempt = ?");
  select.Bind(id.job.value).Bind(id.name).Bind(id.attempt);
  TY_RETURN_IF_ERROR(SeriesTable().Read(select, [&](const SeriesRow& found) {
    row = found;
    return absl::OkStatus();
  }));
  if (row.points == 0) {
    row.id = id;
    row.first_step = points.front().step;
    row.first_cursor = points.front().cursor;
  }
  for (const PackedPoint& point : points) {
    row.is_ascending = row.is_ascending && (row.points == 0 || point.step > row.last_step);
    row.first_step = std::min(row.first_step, point.step);
    row.last_step = row.points == 0 ? point.step : std::max(row.last_step, point.step);
    ++row.points;
  }
  row.last_cursor = points.back().cursor;
  return SeriesTable().Put(db, row);
}

absl::Status AppendToSeries(Database& db, const SeriesId& id,
                            const std::vector<PackedPoint>& points) {
  TY_RETURN_IF_ERROR(NoteInSeries(db, id, points));
  auto rest = points.begin();
  const auto take = [&](size_t room) {
    const auto from = rest;
    rest += std::min(static_cast<ptrdiff_t>(room), points.end() - rest);
    return std::vector<PackedPoint>(from, rest);
  };
  TY_ASSIGN_OR_RETURN(const std::optional<ChunkRow> open, FindOpenChunk(db, id));
  if (open.has_value()) {
    TY_ASSIGN_OR_RETURN(std::vector<PackedPoint> all, ReadPacked(db, *open));
    const std::vector<PackedPoint> more = take(static_cast<size_t>(kChunkPoints) - all.size());
    all.insert(all.end(), more.begin(), more.end());
    TY_RETURN_IF_ERROR(ExtendChunk(db, *open, all));
  }
  while (rest != points.end()) {
    TY_RETURN_IF_ERROR(WriteChunk(db, id, take(kChunkPoints)));
  }
  return absl::OkStatus();
}

}  // namespace

const Table<MetricJobRow>& MetricJobs() {
  using Row = MetricJobRow;
  static const auto* table =
      new Table<Row>("jobs", /*keys=*/1,
                     {TY_COLUMN(Row, "job", job), TY_COLUMN(Row, "points", points),
                      TY_COLUMN(Row, "packed_cursor", packed_cursor)});
  return *table;
}

const Table<SeriesRow>& SeriesTable() {
  using Row = SeriesRow;
  static const auto* table = new Table<Row>(
      "series", /*keys=*/3,
      {TY_COLUMN(Row, "job", id.job), TY_COLUMN(Row, "name", id.name),
       TY_COLUMN(Row, "attempt", id.attempt), TY_COLUMN(Row, "points", points),
       TY_COLUMN(Row, "first_step", first_step), TY_COLUMN(Row, "last_step", last_step),
       TY_COLUMN(Row, "is_ascending", is_ascending), TY_COLUMN(Row, "first_cursor", first_cursor),
       TY_COLUMN(Row, "last_cursor", last_cursor)});
  return *table;
}

const Table<ChunkRow>& Chunks() {
  using Row = ChunkRow;
  static const auto* table = new Table<Row>(
      "chunks", /*keys=*/4,
      {TY_COLUMN(Row, "job", series.job), TY_COLUMN(Row, "name", series.name),
       TY_COLUMN(Row, "attempt", series.attempt), TY_COLUMN(Row, "first_cursor", first_cursor),
       TY_COLUMN(Row, "last_cursor", last_cursor), TY_COLUMN(Row, "points", points),
       TY_COLUMN(Row, "first_step", first_step), TY_COLUMN(Row, "last_step", last_step),
       TY_COLUMN(Row, "least", least), TY_COLUMN(Row, "greatest", greatest),
       TY_COLUMN(Row, "packed", packed)});
  return *table;
}

const Table<PointRow>& Points() {
  using Row = PointRow;
  static const auto* table = new Table<Row>(
      "points", /*keys=*/2,
      {TY_COLUMN(Row, "job", series.job), TY_COLUMN(Row, "cursor", point.cursor),
       TY_COLUMN(Row, "attempt", series.attempt), TY_COLUMN(Row, "name", series.name),
       TY_COLUMN(Row, "step", point.step), TY_COLUMN(Row, "value", point.value),
       TY_COLUMN(Row, "time_us", point.time_us)});
  return *table;
}

absl::StatusOr<MetricJobRow> ReadMetricJob(Database& db, JobId job) {
  MetricJobRow row;
  row.job = job;
  Statement& select = MetricJobs().Select(db, "WHERE job = ?").Bind(job.value);
  TY_RETURN_IF_ERROR(MetricJobs().Read(select, [&](const MetricJobRow& found) {
    row = found;
    return absl::OkStatus();
  }));
  return row;
}

absl::StatusOr<int64_t> PackRows(Database& db, JobId job, int64_t limit,
                                 const std::vector<PointRow>& newer) {
  std::map<std::pair<int64_t, int32_t>, std::vector<PackedPoint>> by_series;
  TY_ASSIGN_OR_RETURN(MetricJobRow about, ReadMetricJob(db, job));
  const auto take = [&](const PointRow& row) {
    by_series[{row.series.name, row.series.attempt}].push_back(row.point);
    about.packed_cursor = row.point.cursor;
    ++about.points;
    return absl::OkStatus();
  };
  const int64_t before = about.points;
  Statement& oldest = Points().Select(db, kOldestRows).Bind(job.value).Bind(limit);
  TY_RETURN_IF_ERROR(Points().Read(oldest, take));
  const int64_t rows = about.points - before;
  for (const PointRow& row : newer) (void)take(row);
  for (const auto& [key, added] : by_series) {
    TY_RETURN_IF_ERROR(AppendToSeries(db, {job, key.first, key.second}, added));
  }
  Statement& remove = db.Prepared(kDeleteRows).Bind(job.value).Bind(about.packed_cursor);
  TY_RETURN_IF_ERROR(remove.Run());
  TY_RETURN_IF_ERROR(MetricJobs().Put(db, about));
  return rows;
}

absl::StatusOr<std::vector<PackedPoint>> ReadPacked(Database& db, const ChunkRow& chunk) {
  std::optional<std::vector<PackedPoint>> points;
  TY_RETURN_IF_ERROR(
      ForEachRow(db.Prepared(kReadPacked).Bind(chunk.packed), [&](const Statement& row) {
        points = DecodePoints(row.Blob(0));
        return absl::OkStatus();
      }));
  if (!points.has_value() || static_cast<int64_t>(points->size()) != chunk.points) {
    return error::CorruptFile(
        db.path(), absl::StrCat("the metric points of ", JobName(chunk.series.job), " from cursor ",
                                chunk.first_cursor, " are damaged"));
  }
  return *std::move(points);
}

absl::StatusOr<int64_t> DeleteChunks(Database& db, Statement& statement) {
  std::vector<ChunkRow> chunks;
  TY_RETURN_IF_ERROR(Chunks().Read(statement, [&](const ChunkRow& row) {
    chunks.push_back(row);
    return absl::OkStatus();
  }));
  for (const ChunkRow& chunk : chunks) {
    const SeriesId& id = chunk.series;
    TY_RETURN_IF_ERROR(db.Prepared(kDeletePacked).Bind(chunk.packed).Run());
    TY_RETURN_IF_ERROR(Chunks().Delete(db, id.job, id.name, id.attempt, chunk.first_cursor));
  }
  return static_cast<int64_t>(chunks.size());
}

}  // namespace trainyard::store
