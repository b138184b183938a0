// Keeps metric points on disk, in a file of their own.
#include "server/store/sqlite/sqlite_metrics_store.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <map>
#include <mutex>
#include <utility>

#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "server/store/series.h"
#include "server/store/sqlite/database.h"
#include "server/store/sqlite/migrations.h"
#include "server/store/sqlite/table.h"

namespace trainyard::store {
namespace {

constexpr char kReadOffset[] =
    "SELECT next_offset FROM offsets WHERE job = ? AND attempt = ? AND rank = ?";
constexpr char kWriteOffset[] =
    "INSERT INTO offsets (job, attempt, rank, next_offset) VALUES (?, ?, ?, ?) "
    "ON CONFLICT (job, attempt, rank) DO UPDATE SET next_offset = excluded.next_offset";
constexpr char kReadNames[] = "SELECT id, name FROM metric_names ORDER BY id";
constexpr char kWriteName[] = "INSERT INTO metric_names (id, name) VALUES (?, ?)";
constexpr char kLastCursor[] =
    "SELECT cursor FROM points WHERE job = ? ORDER BY cursor DESC LIMIT 1";
constexpr char kWritePoint[] =
    "INSERT INTO points (job, cursor, attempt, name, step, value, time_us) "
    "VALUES (?, ?, ?, ?, ?, ?, ?)";
constexpr char kPointsOfJob[] =
    "SELECT name, attempt, step, value, time_us FROM points WHERE job = ? ORDER BY cursor";
constexpr char kPointsAfter[] =
    "SELECT name, attempt, step, value, time_us, cursor FROM points "
    "WHERE job = ? AND cursor > ? ORDER BY cursor LIMIT ?";

constexpr char kCountPoints[] = "SELECT count(*) FROM points WHERE job = ?";
constexpr char kDeletePoints[] = "DELETE FROM points WHERE job = ?";
constexpr char kDeleteOffsets[] = "DELETE FROM offsets WHERE job = ?";
constexpr char kDeletePointsOfAttempt[] = "DELETE FROM points WHERE job = ? AND attempt = ?";
constexpr char kDeleteOffsetsOfAttempt[] = "DELETE FROM offsets WHERE job = ? AND attempt = ?";
constexpr char kReadAttempts[] = "SELECT DISTINCT job, attempt FROM offsets ORDER BY job, attempt";

constexpr char kNamelessPoint[] = "a point belongs to no metric";

// Points are stored by job in order of arrival, so appending, following and drawing a job each
// touch one stretch of the file. In the file, names are numbers.
class SqliteMetricsStore : public MetricsStore {
 public:
  SqliteMetricsStore(std::unique_ptr<Database> writer, std::unique_ptr<Database> reader)
      : reader_path_(reader->path()), writer_(std::move(writer)), reader_(std::move(reader)) {}

  absl::StatusOr<int64_t> AppendPoints(AttemptId attempt, int32_t rank, int64_t offset,
                                       const std::vector<MetricPoint>& points,
                                       int64_t end_offset) override;
  absl::StatusOr<int64_t> ReadOffset(AttemptId attempt, int32_t rank) override;
  absl::StatusOr<MetricSeries> Query(JobId job, const std::vector<std::string>& names) override;
  absl::StatusOr<int64_t> CountPoints(JobId job) override;
  absl::Status DeleteJob(JobId job) override;
  absl::Status DeleteAttempt(AttemptId attempt) override;
  absl::StatusOr<std::vector<AttemptId>> ListAttempts() override;
  absl::StatusOr<MetricPage> ReadAfter(JobId job, int64_t cursor, int64_t limit) override;

 private:
  absl::Status Write(AttemptId attempt, int32_t rank, int64_t offset,
                     const std::vector<MetricPoint>& points,
                     int64_t end_offset);                   // the caller holds writer_mutex_
  absl::StatusOr<int64_t> NameId(const std::string& name);  // the caller holds writer_mutex_

  const std::string reader_path_;
  std::mutex writer_mutex_;
  std::unique_ptr<Database> writer_;  // guarded by writer_mutex_
  // A cache that fills as names occur. It is emptied when a transaction fails, because the names
  // that were added in it are then gone.
  std::map<std::string, int64_t> name_ids_;  // guarded by writer_mutex_
  std::mutex reader_mutex_;
  std::unique_ptr<Database> reader_;  // guarded by reader_mutex_
};

absl::StatusOr<std::map<int64_t, std::string>> ReadNames(Database& db) {
  std::map<int64_t, std::string> names;
  TY_RETURN_IF_ERROR(ForEachRow(db.Prepared(kReadNames), [&](const Statement& row) {
    names[row.Int(0)] = row.Text(1);
    return absl::OkStatus();
  }));
  return names;
}

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

absl::StatusOr<int64_t> SqliteMetricsStore::NameId(const std::string& name) {
  if (name_ids_.empty()) {
    TY_ASSIGN_OR_RETURN(const auto names, ReadNames(*writer_));
    for (const auto& [id, known] : names) name_ids_[known] = id;
  }
  const auto found = name_ids_.find(name);
  if (found != name_ids_.end()) return found->second;
  const auto id = static_cast<int64_t>(name_ids_.size()) + 1;
  TY_RETURN_IF_ERROR(writer_->Prepared(kWriteName).Bind(id).Bind(name).Run());
  name_ids_[name] = id;
  return id;
}

absl::Status SqliteMetricsStore::Write(AttemptId attempt, int32_t rank, int64_t offset,
                                       const std::vector<MetricPoint>& points, int64_t end_offset) {
  Transaction transaction(*writer_);
  TY_RETURN_IF_ERROR(transaction.Begin());
  TY_ASSIGN_OR_RETURN(const int64_t stands_at, OffsetOf(*writer_, attempt, rank));
  if (offset != stands_at) {
    return error::OffsetMismatch(MetricStreamName(attempt, rank), offset, stands_at);
  }
  TY_ASSIGN_OR_RETURN(int64_t cursor,
                      ReadInt(writer_->Prepared(kLastCursor).Bind(attempt.job.value), 0));
  Statement& insert = writer_->Prepared(kWritePoint);
  for (const MetricPoint& point : points) {
    TY_ASSIGN_OR_RETURN(const int64_t name, NameId(point.name));
    insert.Bind(attempt.job.value).Bind(++cursor).Bind(attempt.number).Bind(name);
    TY_RETURN_IF_ERROR(insert.Bind(point.step).BindReal(point.value).Bind(point.time_us).Run());
  }
  Statement& update = writer_->Prepared(kWriteOffset);
  update.Bind(attempt.job.value).Bind(attempt.number).Bind(rank);
  TY_RETURN_IF_ERROR(update.Bind(end_offset).Run());
  return transaction.Commit();
}

absl::StatusOr<int64_t> SqliteMetricsStore::AppendPoints(AttemptId attempt, int32_t rank,
                                                         int64_t offset,
                                                         const std::vector<MetricPoint>& points,
                                                         int64_t end_offset) {
  TY_RETURN_IF_ERROR(CheckOffsets(offset, end_offset));
  const std::lock_guard lock(writer_mutex_);
  if (absl::Status status = Write(attempt, rank, offset, points, end_offset); !status.ok()) {
    name_ids_.clear();
    return status;
  }
  return end_offset;
}

absl::StatusOr<int64_t> SqliteMetricsStore::ReadOffset(AttemptId attempt, int32_t rank) {
  const std::lock_guard lock(reader_mutex_);
  return OffsetOf(*reader_, attempt, rank);
}

absl::StatusOr<MetricSeries> SqliteMetricsStore::Query(JobId job,
                                                       const std::vector<std::string>& names) {
  MetricSeries series;
  {
    const std::lock_guard lock(reader_mutex_);
    Transaction transaction(*reader_);
    TY_RETURN_IF_ERROR(transaction.BeginRead());
    TY_ASSIGN_OR_RETURN(const auto all, ReadNames(*reader_));
    // Returns the series by the number of its metric, or null if it was not asked for.
    std::map<int64_t, std::vector<StoredPoint>*> wanted;
    for (const auto& [id, name] : all) {
      const bool asked =
          names.empty() || std::find(names.begin(), names.end(), name) != names.end();
      wanted[id] = asked ? &series[name] : nullptr;
    }
    Statement& rows = reader_->Prepared(kPointsOfJob);
    TY_RETURN_IF_ERROR(ForEachRow(rows.Bind(job.value), [&](const Statement& row) -> absl::Status {
      const auto found = wanted.find(row.Int(0));
      if (found == wanted.end()) return error::CorruptFile(reader_path_, kNamelessPoint);
      if (found->second == nullptr) return absl::OkStatus();
      found->second->push_back(
          {{row.Int(2), all.at(found->first), row.Real(3), row.Int(4)}, row.Int32(1)});
      return absl::OkStatus();
    }));
  }
  for (auto it = series.begin(); it != series.end();) {
    it = it->second.empty() ? series.erase(it) : std::next(it);
  }
  for (auto& [name, points] : series) points = MergeAttempts(std::move(points));
  return series;
}

absl::StatusOr<int64_t> SqliteMetricsStore::CountPoints(JobId job) {
  const std::lock_guard lock(reader_mutex_);
  return ReadInt(reader_->Prepared(kCountPoints).Bind(job.value), 0);
}

absl::Status SqliteMetricsStore::DeleteJob(JobId job) {
  const std::lock_guard lock(writer_mutex_);
  Transaction transaction(*writer_);
  TY_RETURN_IF_ERROR(transaction.Begin());
  TY_RETURN_IF_ERROR(writer_->Prepared(kDeletePoints).Bind(job.value).Run());
  TY_RETURN_IF_ERROR(writer_->Prepared(kDeleteOffsets).Bind(job.value).Run());
  return transaction.Commit();
}

absl::Status SqliteMetricsStore::DeleteAttempt(AttemptId attempt) {
  const std::lock_guard lock(writer_mutex_);
  Transaction transaction(*writer_);
  TY_RETURN_IF_ERROR(transaction.Begin());
  for (const char* sql : {kDeletePointsOfAttempt, kDeleteOffsetsOfAttempt}) {
    Statement& statement = writer_->Prepared(sql);
    TY_RETURN_IF_ERROR(statement.Bind(attempt.job.value).Bind(attempt.number).Run());
  }
  return transaction.Commit();
}

absl::StatusOr<std::vector<AttemptId>> SqliteMetricsStore::ListAttempts() {
  const std::lock_guard lock(reader_mutex_);
  std::vector<AttemptId> attempts;
  TY_RETURN_IF_ERROR(ForEachRow(reader_->Prepared(kReadAttempts), [&](const Statement& row) {
    attempts.push_back({JobId{row.Int(0)}, row.Int32(1)});
    return absl::OkStatus();
  }));
  return attempts;
}

absl::StatusOr<MetricPage> SqliteMetricsStore::ReadAfter(JobId job, int64_t cursor, int64_t limit) {
  MetricPage page;
  page.cursor = cursor;
  const std::lock_guard lock(reader_mutex_);
  Transaction transaction(*reader_);
  TY_RETURN_IF_ERROR(transaction.BeginRead());
  TY_ASSIGN_OR_RETURN(const auto names, ReadNames(*reader_));
  Statement& rows = reader_->Prepared(kPointsAfter);
  rows.Bind(job.value).Bind(cursor).Bind(std::clamp<int64_t>(limit, 0, kMetricPageMax));
  TY_RETURN_IF_ERROR(ForEachRow(rows, [&](const Statement& row) -> absl::Status {
    const auto name = names.find(row.Int(0));
    if (name == names.end()) return error::CorruptFile(reader_path_, kNamelessPoint);
    page.points.push_back({{row.Int(2), name->second, row.Real(3), row.Int(4)}, row.Int32(1)});
    page.cursor = row.Int(5);
    return absl::OkStatus();
  }));
  return page;
}

}  // namespace

absl::Status CopySqliteMetrics(const std::string& path, const std::string& copy) {
  TY_ASSIGN_OR_RETURN(const auto db, Database::Open(path, Database::Mode::kRelaxed));
  TY_RETURN_IF_ERROR(db->Prepared("VACUUM INTO ?").Bind(copy).Run());
  TY_ASSIGN_OR_RETURN(const UniqueFd fd, OpenFile(copy, O_RDONLY));
  if (fsync(fd.get()) != 0) return ErrnoStatus(errno, "cannot sync", copy);
  return SyncDirectory(std::filesystem::path(copy).parent_path().string());
}

absl::StatusOr<std::unique_ptr<MetricsStore>> OpenSqliteMetricsStore(const std::string& path) {
  TY_ASSIGN_OR_RETURN(auto writer, Database::Open(path, Database::Mode::kRelaxed));
  TY_RETURN_IF_ERROR(Migrate(*writer, "metrics", MetricsMigrations()));
  TY_ASSIGN_OR_RETURN(auto reader, Database::Open(path, Database::Mode::kReadOnly));
  return std::make_unique<SqliteMetricsStore>(std::move(writer), std::move(reader));
}

}  // namespace trainyard::store
