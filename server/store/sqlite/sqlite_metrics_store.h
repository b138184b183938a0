// Keeps metric points in a file of their own, with WAL and synchronous=NORMAL. A power loss may
// undo the last points, but the offsets with them, so the worker sends them again. The same holds
// if the log is damaged (append_journal.h).
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "server/store/metrics_store.h"
#include "server/store/sqlite/append_journal.h"
#include "server/store/sqlite/connection_pool.h"
#include "server/store/sqlite/database.h"

namespace trainyard::store {

// Says that the file has lost what was appended to a stream after `offset`.
struct LostPoints {
  AttemptId attempt;
  int32_t rank = 0;
  int64_t offset = 0;
  int64_t points = 0;
};

class SqliteMetricsStore : public MetricsStore {
 public:
  // Opens the file, creates it if it does not exist, and migrates it if it is older. The errors are
  // those of OpenSqliteStore, except that lost points are no error.
  static absl::StatusOr<std::unique_ptr<SqliteMetricsStore>> Open(const std::string& path);

  absl::StatusOr<int64_t> AppendPoints(AttemptId attempt, int32_t rank, int64_t offset,
                                       const std::vector<MetricPoint>& points,
                                       int64_t end_offset) override;
  absl::StatusOr<int64_t> ReadOffset(AttemptId attempt, int32_t rank) override;
  absl::StatusOr<MetricSeries> Query(JobId job, const std::vector<std::string>& names,
                                     const PointChoice& choice) override;
  absl::StatusOr<int64_t> CountPoints(JobId job) override;
  absl::StatusOr<int64_t> SizeOf(JobId job) override;
  absl::Status DeleteJob(JobId job) override;
  absl::Status DeleteAttempt(AttemptId attempt) override;
  absl::StatusOr<std::vector<AttemptId>> ListAttempts() override;
  absl::StatusOr<MetricPage> ReadAfter(JobId job, const std::vector<std::string>& names,
                                       int64_t cursor, int64_t limit) override;

  // Returns what had been lost when the file was opened. It is told once, by the next start.
  const std::vector<LostPoints>& lost() const { return lost_; }
  // See ConnectionPool::instructions.
  int64_t read_instructions() const { return readers_->instructions(); }

 private:
  SqliteMetricsStore(std::unique_ptr<Database> writer, AppendJournal journal)
      : writer_(std::move(writer)), journal_(std::move(journal)) {}

  absl::Status FindLostPoints() ABSL_EXCLUSIVE_LOCKS_REQUIRED(writer_mutex_);
  // Returns the cursor of the last point.
  absl::StatusOr<int64_t> Write(AttemptId attempt, int32_t rank, int64_t offset,
                                const std::vector<MetricPoint>& points, int64_t end_offset)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(writer_mutex_);
  absl::StatusOr<int64_t> WritePoints(AttemptId attempt, const std::vector<MetricPoint>& points)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(writer_mutex_);
  absl::StatusOr<int64_t> NameId(const std::string& name)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(writer_mutex_);
  // Adds an entry to the journal, and empties it if it is full and nothing needs it.
  void Note(const JournalEntry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(writer_mutex_);
  absl::StatusOr<bool> DeleteSomeChunks(JobId job);

  Mutex writer_mutex_;
  std::unique_ptr<Database> writer_ ABSL_PT_GUARDED_BY(writer_mutex_);
  AppendJournal journal_ ABSL_GUARDED_BY(writer_mutex_);
  int64_t journal_due_ ABSL_GUARDED_BY(writer_mutex_) = AppendJournal::kFullBytes;
  // A cache that fills as names occur. It is emptied when a transaction fails, because the names
  // that were added in it are then gone.
  std::map<std::string, int64_t> name_ids_ ABSL_GUARDED_BY(writer_mutex_);
  std::unique_ptr<ConnectionPool> readers_;
  std::vector<LostPoints> lost_;
};

// Opens a SqliteMetricsStore.
absl::StatusOr<std::unique_ptr<SqliteMetricsStore>> OpenSqliteMetricsStore(const std::string& path);

// Copies the store at `path` to a new file `copy`, which is durable when this returns.
absl::Status CopySqliteMetrics(const std::string& path, const std::string& copy);

}  // namespace trainyard::store
