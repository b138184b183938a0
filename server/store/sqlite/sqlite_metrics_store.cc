// Keeps metric points on disk, in a file of their own. One connection writes, and a pool of others
// reads.
#include "server/store/sqlite/sqlite_metrics_store.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "server/store/series.h"
#include "server/store/sqlite/metric_reads.h"
#include "server/store/sqlite/metric_rows.h"
#include "server/store/sqlite/migrations.h"
#include "server/store/sqlite/sqlite_store.h"

namespace trainyard::store {
namespace {

constexpr char kReadOffset[] =
    "SELECT next_offset FROM offsets WHERE job = ? AND attempt = ? AND rank = ?";
constexpr char kWriteOffset[] =
    "INSERT INTO offsets (job, attempt, rank, next_offset) VALUES (?, ?, ?, ?) "
    "ON CONFLICT (job, attempt, rank) DO UPDATE SET next_offset = excluded.next_offset";
constexpr char kReadNames[] = "SELECT id, name FROM metric_names ORDER BY id";
constexpr char kWriteName[] = "INSERT INTO metric_names (id, name) VALUES (?, ?)";
constexpr char kLastRow[] = "SELECT cursor FROM points WHERE job = ? ORDER BY cursor DESC LIMIT 1";
constexpr char kCountRows[] = "SELECT count(*) FROM points WHERE job = ?";
// SQLite reads no content for the length of a blob.
constexpr char kChunkBytes[] =
    "SELECT coalesce(sum(length(p.points)), 0) + count(*) * ? FROM chunks c "
    "JOIN packed_points p ON p.id = c.packed WHERE c.job = ?";
// A row of `chunks` and one of `points` take about this much, with their keys.
constexpr int64_t kChunkRowBytes = 64;
constexpr int64_t kPointRowBytes = 32;

constexpr char kDeletePoints[] = "DELETE FROM points WHERE job = ?";
constexpr char kDeleteOffsets[] = "DELETE FROM offsets WHERE job = ?";
constexpr char kDeleteSeries[] = "DELETE FROM series WHERE job = ?";
constexpr char kDeleteJob[] = "DELETE FROM jobs WHERE job = ?";
constexpr char kSomeChunks[] = "WHERE job = ? ORDER BY name, attempt, first_cursor LIMIT ?";

constexpr char kPackedPointsOfAttempt[] =
    "SELECT coalesce(sum(points), 0) FROM series WHERE job = ? AND attempt = ?";
constexpr char kDeletePointsOfAttempt[] = "DELETE FROM points WHERE job = ? AND attempt = ?";
constexpr char kDeleteOffsetsOfAttempt[] = "DELETE FROM offsets WHERE job = ? AND attempt = ?";
constexpr char kDeleteSeriesOfAttempt[] = "DELETE FROM series WHERE job = ? AND attempt = ?";
constexpr char kSomeChunksOfAttempt[] =
    "WHERE job = ? AND attempt = ? ORDER BY name, first_cursor LIMIT ?";
constexpr char kReadAttempts[] = "SELECT DISTINCT job, attempt FROM offsets ORDER BY job, attempt";

constexpr int64_t kAllRows = std::numeric_limits<int64_t>::max();

constexpr char kWriteLogBack[] = "PRAGMA wal_checkpoint(PASSIVE)";

// Returns the value of the only row and column, or `otherwise` if there is no row.
absl::StatusOr<int64_t> ReadInt(Statement& statement, int64_t otherwise) {
  TY_ASSIGN_OR_RETURN(const bool row, statement.Step());
  const int64_t value = row ? statement.Int(0) : otherwise;
  statement.Reset();
  return value;
}

absl::StatusOr<int64_t> OffsetOf(Database& db, AttemptId attempt, int32_t rank) {
  Statement& statement = db.Prepared(kReadOffset);
  statement.Bind(attempt.job.value).Bind(attempt.number).Bind(rank);
  return ReadInt(statement, 0);
}

// Writes the log back into the file. Returns true if all of it is there, and durable.
absl::StatusOr<bool> WriteLogBack(Database& db) {
  Statement& statement = db.Prepared(kWriteLogBack);
  TY_ASSIGN_OR_RETURN(const bool row, statement.Step());
  const bool is_whole = row && statement.Int(0) == 0 && statement.Int(1) == statement.Int(2);
  statement.Reset();
  return is_whole;
}

// Cursors of lost points are not given out again, so nobody who follows the job misses new ones.
absl::Status SkipCursors(Database& db, JobId job, int64_t last_cursor) {
  TY_RETURN_IF_ERROR(PackRows(db, job, kAllRows, {}).status());
  TY_ASSIGN_OR_RETURN(MetricJobRow row, ReadMetricJob(db, job));
  row.packed_cursor = std::max(row.packed_cursor, last_cursor);
  return MetricJobs().Put(db, row);
}

}  // namespace

absl::StatusOr<std::unique_ptr<SqliteMetricsStore>> SqliteMetricsStore::Open(
    const std::string& path) {
  TY_ASSIGN_OR_RETURN(auto writer, Database::Open(path, Database::Mode::kRelaxed));
  TY_RETURN_IF_ERROR(Migrate(*writer, "metrics", MetricsMigrations()));
  TY_ASSIGN_OR_RETURN(AppendJournal journal,
                      AppendJournal::Open(absl::StrCat(path, kCommittedSuffix)));
  std::unique_ptr<SqliteMetricsStore> store(
      new SqliteMetricsStore(std::move(writer), std::move(journal)));
  {
    const MutexLock lock(&store->writer_mutex_);
    TY_RETURN_IF_ERROR(store->FindLostPoints());
  }
  TY_ASSIGN_OR_RETURN(store->readers_, ConnectionPool::Open(path, kMetricReadersMax));
  return store;
}

absl::Status SqliteMetricsStore::FindLostPoints() {
  TY_ASSIGN_OR_RETURN(const std::vector<JournalEntry> entries, journal_.Read());
  std::map<std::pair<AttemptId, int32_t>, LostPoints> lost;
  std::map<JobId, int64_t> cursors;
  for (const JournalEntry& entry : entries) {
    if (entry.kind == JournalEntry::Kind::kDelete) {
      const AttemptId& gone = entry.attempt;
      std::erase_if(lost, [&gone](const auto& stream) {
        const AttemptId& attempt = stream.first.first;
        return attempt.job == gone.job && (gone.number == 0 || attempt == gone);
      });
      continue;
    }
    TY_ASSIGN_OR_RETURN(const int64_t offset, OffsetOf(*writer_, entry.attempt, entry.rank));
    if (entry.end_offset <= offset) continue;
    LostPoints& stream = lost[{entry.attempt, entry.rank}];
    stream = {entry.attempt, entry.rank, offset, stream.points + entry.points};
    cursors[entry.attempt.job] = std::max(cursors[entry.attempt.job], entry.last_cursor);
  }
  Transaction transaction(*writer_);
  TY_RETURN_IF_ERROR(transaction.Begin());
  for (const auto& [stream, what] : lost) {
    lost_.push_back(what);
    TY_RETURN_IF_ERROR(SkipCursors(*writer_, what.attempt.job, cursors[what.attempt.job]));
  }
  TY_RETURN_IF_ERROR(transaction.Commit());
  TY_ASSIGN_OR_RETURN(const bool is_whole, WriteLogBack(*writer_));
  if (is_whole) journal_.Clear();
  return absl::OkStatus();
}

absl::StatusOr<int64_t> SqliteMetricsStore::NameId(const std::string& name) {
  if (name_ids_.empty()) {
    TY_RETURN_IF_ERROR(ForEachRow(writer_->Prepared(kReadNames),
                                  [this](const Statement& row)
                                      ABSL_EXCLUSIVE_LOCKS_REQUIRED(writer_mutex_) {
                                        name_ids_[row.Text(1)] = row.Int(0);
                                        return absl::OkStatus();
                                      }));
  }
  const auto found = name_ids_.find(name);
  if (found != name_ids_.end()) return found->second;
  const auto id = static_cast<int64_t>(name_ids_.size()) + 1;
  TY_RETURN_IF_ERROR(writer_->Prepared(kWriteName).Bind(id).Bind(name).Run());
  name_ids_[name] = id;
  return id;
}

absl::StatusOr<int64_t> SqliteMetricsStore::WritePoints(AttemptId attempt,
                                                        const std::vector<MetricPoint>& points) {
  TY_ASSIGN_OR_RETURN(const MetricJobRow job, ReadMetricJob(*writer_, attempt.job));
  Statement& last_row = writer_->Prepared(kLastRow).Bind(attempt.job.value);
  TY_ASSIGN_OR_RETURN(int64_t cursor, ReadInt(last_row, job.packed_cursor));
  std::vector<PointRow> rows;
  rows.reserve(points.size());
  for (const MetricPoint& point : points) {
    TY_ASSIGN_OR_RETURN(const int64_t name, NameId(point.name));
    rows.push_back(
        {{attempt.job, name, attempt.number}, {++cursor, point.step, point.value, point.time_us}});
  }
  if (cursor - job.packed_cursor >= kUnpackedMax) {
    TY_RETURN_IF_ERROR(PackRows(*writer_, attempt.job, kAllRows, rows).status());
  } else {
    for (const PointRow& row : rows) TY_RETURN_IF_ERROR(Points().Insert(*writer_, row));
  }
  return cursor;
}

absl::StatusOr<int64_t> SqliteMetricsStore::Write(AttemptId attempt, int32_t rank, int64_t offset,
                                                  const std::vector<MetricPoint>& points,
                                                  int64_t end_offset) {
  Transaction transaction(*writer_);
  TY_RETURN_IF_ERROR(transaction.Begin());
  TY_ASSIGN_OR_RETURN(const int64_t stands_at, OffsetOf(*writer_, attempt, rank));
  if (offset != stands_at) {
    return error::OffsetMismatch(MetricStreamName(attempt, rank), offset, stands_at);
  }
  TY_ASSIGN_OR_RETURN(const int64_t last_cursor, WritePoints(attempt, points));
  Statement& update = writer_->Prepared(kWriteOffset);
  update.Bind(attempt.job.value).Bind(attempt.number).Bind(rank);
  TY_RETURN_IF_ERROR(update.Bind(end_offset).Run());
  TY_RETURN_IF_ERROR(transaction.Commit());
  return last_cursor;
}

void SqliteMetricsStore::Note(const JournalEntry& entry) {
  journal_.Add(entry);
  if (journal_.size() < journal_due_) return;
  const absl::StatusOr<bool> is_whole = WriteLogBack(*writer_);
  if (!is_whole.ok()) {
    LogWarning("cannot write the log of metrics back",
               {{"error", std::string(is_whole.status().message())}});
  } else if (*is_whole) {
    journal_.Clear();
  }
  // If a reader is in the way, it is tried again later.
  journal_due_ = journal_.size() + AppendJournal::kFullBytes;
}

absl::StatusOr<int64_t> SqliteMetricsStore::AppendPoints(AttemptId attempt, int32_t rank,
                                                         int64_t offset,
                                                         const std::vector<MetricPoint>& points,
                                                         int64_t end_offset) {
  TY_RETURN_IF_ERROR(CheckOffsets(offset, end_offset));
  const MutexLock lock(&writer_mutex_);
  const auto last_cursor = Write(attempt, rank, offset, points, end_offset);
  if (!last_cursor.ok()) {
    name_ids_.clear();
    return last_cursor.status();
  }
  Note({JournalEntry::Kind::kAppend, attempt, rank, end_offset, static_cast<int64_t>(points.size()),
        *last_cursor});
  return end_offset;
}

absl::StatusOr<int64_t> SqliteMetricsStore::ReadOffset(AttemptId attempt, int32_t rank) {
  const MutexLock lock(&writer_mutex_);
  return OffsetOf(*writer_, attempt, rank);
}

absl::StatusOr<MetricSeries> SqliteMetricsStore::Query(JobId job,
                                                       const std::vector<std::string>& names,
                                                       const PointChoice& choice) {
  TY_ASSIGN_OR_RETURN(const auto reader, readers_->Take());
  return QuerySeries(**reader, job, names, choice);
}

absl::StatusOr<int64_t> SqliteMetricsStore::CountPoints(JobId job) {
  TY_ASSIGN_OR_RETURN(const auto reader, readers_->Take());
  TY_ASSIGN_OR_RETURN(const MetricJobRow row, ReadMetricJob(**reader, job));
  TY_ASSIGN_OR_RETURN(const int64_t rows,
                      ReadInt((**reader).Prepared(kCountRows).Bind(job.value), 0));
  return row.points + rows;
}

absl::StatusOr<int64_t> SqliteMetricsStore::SizeOf(JobId job) {
  TY_ASSIGN_OR_RETURN(const auto reader, readers_->Take());
  TY_ASSIGN_OR_RETURN(
      const int64_t chunks,
      ReadInt((**reader).Prepared(kChunkBytes).Bind(kChunkRowBytes).Bind(job.value), 0));
  TY_ASSIGN_OR_RETURN(const int64_t rows,
                      ReadInt((**reader).Prepared(kCountRows).Bind(job.value), 0));
  return chunks + rows * kPointRowBytes;
}

absl::StatusOr<bool> SqliteMetricsStore::DeleteSomeChunks(JobId job) {
  const MutexLock lock(&writer_mutex_);
  Transaction transaction(*writer_);
  TY_RETURN_IF_ERROR(transaction.Begin());
  Statement& some = Chunks().Select(*writer_, kSomeChunks);
  TY_ASSIGN_OR_RETURN(const int64_t deleted,
                      DeleteChunks(*writer_, some.Bind(job.value).Bind(kDeletedChunksMax)));
  TY_RETURN_IF_ERROR(transaction.Commit());
  return deleted == kDeletedChunksMax;
}

// Appends to other jobs go on in between. The offsets go last: if the server dies before that, they
// tell the next start that the job has something to delete.
absl::Status SqliteMetricsStore::DeleteJob(JobId job) {
  for (bool has_more = true; has_more;) {
    TY_ASSIGN_OR_RETURN(has_more, DeleteSomeChunks(job));
  }
  const MutexLock lock(&writer_mutex_);
  Transaction transaction(*writer_);
  TY_RETURN_IF_ERROR(transaction.Begin());
  for (const char* sql : {kDeletePoints, kDeleteSeries, kDeleteJob, kDeleteOffsets}) {
    TY_RETURN_IF_ERROR(writer_->Prepared(sql).Bind(job.value).Run());
  }
  TY_RETURN_IF_ERROR(transaction.Commit());
  Note({JournalEntry::Kind::kDelete, {job, 0}});
  return absl::OkStatus();
}

absl::Status SqliteMetricsStore::DeleteAttempt(AttemptId attempt) {
  const MutexLock lock(&writer_mutex_);
  Transaction transaction(*writer_);
  TY_RETURN_IF_ERROR(transaction.Begin());
  const auto prepare = [&](Statement& statement) -> Statement& {
    return statement.Bind(attempt.job.value).Bind(attempt.number);
  };
  TY_ASSIGN_OR_RETURN(const int64_t points,
                      ReadInt(prepare(writer_->Prepared(kPackedPointsOfAttempt)), 0));
  for (int64_t deleted = kDeletedChunksMax; deleted == kDeletedChunksMax;) {
    Statement& some = prepare(Chunks().Select(*writer_, kSomeChunksOfAttempt));
    TY_ASSIGN_OR_RETURN(deleted, DeleteChunks(*writer_, some.Bind(kDeletedChunksMax)));
  }
  for (const char* sql :
       {kDeletePointsOfAttempt, kDeleteSeriesOfAttempt, kDeleteOffsetsOfAttempt}) {
    TY_RETURN_IF_ERROR(prepare(writer_->Prepared(sql)).Run());
  }
  TY_ASSIGN_OR_RETURN(MetricJobRow row, ReadMetricJob(*writer_, attempt.job));
  row.points -= points;
  TY_RETURN_IF_ERROR(MetricJobs().Put(*writer_, row));
  TY_RETURN_IF_ERROR(transaction.Commit());
  Note({JournalEntry::Kind::kDelete, attempt});
  return absl::OkStatus();
}

absl::StatusOr<std::vector<AttemptId>> SqliteMetricsStore::ListAttempts() {
  TY_ASSIGN_OR_RETURN(const auto reader, readers_->Take());
  std::vector<AttemptId> attempts;
  TY_RETURN_IF_ERROR(ForEachRow((**reader).Prepared(kReadAttempts), [&](const Statement& row) {
    attempts.push_back({JobId{row.Int(0)}, row.Int32(1)});
    return absl::OkStatus();
  }));
  return attempts;
}

absl::StatusOr<MetricPage> SqliteMetricsStore::ReadAfter(JobId job,
                                                         const std::vector<std::string>& names,
                                                         int64_t cursor, int64_t limit) {
  TY_ASSIGN_OR_RETURN(const auto reader, readers_->Take());
  return ReadPage(**reader, job, names, cursor, std::clamp<int64_t>(limit, 0, kMetricPageMax));
}

absl::StatusOr<std::unique_ptr<SqliteMetricsStore>> OpenSqliteMetricsStore(
    const std::string& path) {
  return SqliteMetricsStore::Open(path);
}

absl::Status CopySqliteMetrics(const std::string& path, const std::string& copy) {
  TY_ASSIGN_OR_RETURN(const auto db, Database::Open(path, Database::Mode::kRelaxed));
  TY_RETURN_IF_ERROR(db->Prepared("VACUUM INTO ?").Bind(copy).Run());
  TY_ASSIGN_OR_RETURN(const UniqueFd fd, OpenFile(copy, O_RDONLY));
  if (fsync(fd.get()) != 0) return ErrnoStatus(errno, "cannot sync", copy);
  return SyncDirectory(std::filesystem::path(copy).parent_path().string());
}

}  // namespace trainyard::store
