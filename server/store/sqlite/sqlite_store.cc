// Implements the store on disk. Each commit is one transaction, whatever rows it writes.
#include "server/store/sqlite/sqlite_store.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "server/store/sqlite/database.h"
#include "server/store/sqlite/high_water_mark.h"
#include "server/store/sqlite/migrations.h"
#include "server/store/sqlite/rows.h"

namespace trainyard::store {
namespace {

// There are two connections: the writer's, which only one thread uses, and one for readers of
// events, so that a long page never delays a commit.
class SqliteStore : public Store {
 public:
  SqliteStore(std::unique_ptr<Database> writer, std::unique_ptr<Database> reader,
              HighWaterMark mark)
      : writer_(std::move(writer)), mark_(std::move(mark)), reader_(std::move(reader)) {}

  absl::StatusOr<core::Snapshot> Load() override;
  absl::Status Commit(const core::Delta& delta) override;
  absl::StatusOr<std::vector<core::EventRecord>> ListEvents(absl::string_view parent,
                                                            int64_t after_sequence,
                                                            int64_t limit) override;

 private:
  absl::Status ReadAll(core::Snapshot& snapshot);
  // Jobs are new from `first_new` on.
  absl::Status WriteRows(const core::Delta& delta, JobId first_new);
  absl::Status WriteDeletions(const core::Delta& delta);
  absl::Status WriteShares(const core::Delta& delta);

  std::unique_ptr<Database> writer_;
  HighWaterMark mark_;
  // A std::mutex, because the thread sanitizer does not see through absl::Mutex.
  std::mutex reader_mutex_;
  std::unique_ptr<Database> reader_;  // guarded by reader_mutex_
};

absl::StatusOr<core::Snapshot> SqliteStore::Load() {
  core::Snapshot snapshot;
  const absl::Status status = ReadAll(snapshot);
  if (status.ok()) return snapshot;
  if (!ErrorReason(status).empty()) return status;
  // The file is valid as a database, but its content is not that of our store.
  return error::CorruptFile(writer_->path(), status.message());
}

absl::Status SqliteStore::ReadAll(core::Snapshot& snapshot) {
  TY_RETURN_IF_ERROR(ReadMeta(*writer_, snapshot));
  TY_RETURN_IF_ERROR(ReadJobs(*writer_, snapshot));
  TY_RETURN_IF_ERROR(ReadAttempts(*writer_, snapshot));
  TY_RETURN_IF_ERROR(ReadWorkers(*writer_, snapshot));
  TY_RETURN_IF_ERROR(ReadCheckpoints(*writer_, snapshot));
  TY_RETURN_IF_ERROR(ReadRequests(*writer_, snapshot));
  TY_RETURN_IF_ERROR(ReadQuotas(*writer_, snapshot));
  TY_RETURN_IF_ERROR(ReadReservations(*writer_, snapshot));
  return ReadUsage(*writer_, snapshot);
}

absl::Status SqliteStore::Commit(const core::Delta& delta) {
  Transaction transaction(*writer_);
  TY_RETURN_IF_ERROR(transaction.Begin());
  core::Snapshot before;
  TY_RETURN_IF_ERROR(ReadMeta(*writer_, before));
  if (delta.revision <= before.revision) {
    // The lock of the state directory keeps others away, unless the file system has none that work.
    return MakeError(absl::StatusCode::kFailedPrecondition, "STATE_TAKEN_OVER",
                     absl::StrCat("another server has written to '", writer_->path(),
                                  "' since this one has read it, so nothing is decided here any "
                                  "more; run one server alone, on a file system with locks"));
  }
  if (delta.revision != before.revision + 1) {
    return absl::FailedPreconditionError(
        absl::StrCat("commit of revision ", delta.revision, "; the store is at ", before.revision));
  }
  TY_RETURN_IF_ERROR(WriteRows(delta, JobId{before.next_job}));
  TY_RETURN_IF_ERROR(WriteMeta(*writer_, delta));
  TY_RETURN_IF_ERROR(transaction.Commit());
  mark_.Write({delta.revision, delta.next_job, delta.next_event});
  return absl::OkStatus();
}

absl::Status SqliteStore::WriteDeletions(const core::Delta& delta) {
  for (const core::CheckpointRef& id : delta.deleted_checkpoints) {
    TY_RETURN_IF_ERROR(DeleteCheckpoint(*writer_, id));
  }
  for (const JobId job : delta.deleted_jobs) {
    TY_RETURN_IF_ERROR(DeleteAttempts(*writer_, job));
    TY_RETURN_IF_ERROR(DeleteJob(*writer_, job));
    TY_RETURN_IF_ERROR(DeleteEvents(*writer_, JobName(job)));
  }
  for (const JobId id : delta.deleted_submissions) {
    TY_RETURN_IF_ERROR(DeleteSubmission(*writer_, id));
  }
  return absl::OkStatus();
}

absl::Status SqliteStore::WriteRows(const core::Delta& delta, JobId first_new) {
  TY_RETURN_IF_ERROR(WriteDeletions(delta));
  for (const core::JobRecord& job : delta.jobs) {
    TY_RETURN_IF_ERROR(WriteJob(*writer_, job, /*is_new=*/job.id >= first_new));
  }
  for (const core::AttemptRecord& attempt : delta.attempts) {
    TY_RETURN_IF_ERROR(WriteAttempt(*writer_, attempt));
  }
  for (const core::WorkerRecord& worker : delta.workers) {
    TY_RETURN_IF_ERROR(WriteWorker(*writer_, worker));
  }
  for (const std::string& name : delta.deleted_workers) {
    TY_RETURN_IF_ERROR(DeleteWorker(*writer_, name));
  }
  for (const core::CheckpointRecord& checkpoint : delta.checkpoints) {
    TY_RETURN_IF_ERROR(WriteCheckpoint(*writer_, checkpoint));
  }
  for (const core::RequestRecord& request : delta.requests) {
    TY_RETURN_IF_ERROR(WriteRequest(*writer_, request));
  }
  for (const core::EventRecord& event : delta.events) {
    TY_RETURN_IF_ERROR(WriteEvent(*writer_, event));
  }
  return WriteShares(delta);
}

absl::Status SqliteStore::WriteShares(const core::Delta& delta) {
  for (const core::QuotaRecord& quota : delta.quotas) {
    TY_RETURN_IF_ERROR(WriteQuota(*writer_, quota));
  }
  for (const std::string& subject : delta.deleted_quotas) {
    TY_RETURN_IF_ERROR(DeleteQuota(*writer_, subject));
  }
  for (const core::ReservationRecord& reservation : delta.reservations) {
    TY_RETURN_IF_ERROR(WriteReservation(*writer_, reservation));
  }
  for (const std::string& name : delta.deleted_reservations) {
    TY_RETURN_IF_ERROR(DeleteReservation(*writer_, name));
  }
  return delta.usage_changed ? WriteUsage(*writer_, delta.usage) : absl::OkStatus();
}

absl::StatusOr<std::vector<core::EventRecord>> SqliteStore::ListEvents(absl::string_view parent,
                                                                       int64_t after_sequence,
                                                                       int64_t limit) {
  limit = std::clamp<int64_t>(limit, 0, kEventPageMax);
  const std::lock_guard lock(reader_mutex_);
  return ReadEvents(*reader_, parent, after_sequence, limit);
}

// Moves the counters of the database to the mark, so that neither numbers of jobs nor revisions are
// given out again.
absl::Status MoveTo(const Watermark& mark, Database& db) {
  Transaction transaction(db);
  TY_RETURN_IF_ERROR(transaction.Begin());
  core::Snapshot have;
  TY_RETURN_IF_ERROR(ReadMeta(db, have));
  core::Delta delta;
  delta.revision = mark.revision;
  delta.next_job = std::max(have.next_job, mark.next_job);
  delta.next_event = std::max(have.next_event, mark.next_event);
  delta.pool_time_us = have.pool_time_us;
  TY_RETURN_IF_ERROR(WriteMeta(db, delta));
  return transaction.Commit();
}

// Compares the database with the mark of its last commit.
absl::Status CheckForLostCommits(const HighWaterMark& mark_file, Database& db, bool accept) {
  TY_ASSIGN_OR_RETURN(const std::optional<Watermark> mark, mark_file.Read());
  core::Snapshot have;
  TY_RETURN_IF_ERROR(ReadMeta(db, have));
  if (!mark.has_value() || mark->revision <= have.revision) return absl::OkStatus();
  if (!accept) return error::CommitsLost(db.path(), have.revision, mark->revision);
  LogError("the database has lost commits; the server goes on without them, as it was told",
           {{"have", absl::StrCat(have.revision)}, {"committed", absl::StrCat(mark->revision)}});
  return MoveTo(*mark, db);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Store>> OpenSqliteStore(const std::string& path,
                                                       const SqliteStoreOptions& options) {
  TY_ASSIGN_OR_RETURN(auto writer, Database::Open(path, Database::Mode::kDurable));
  TY_RETURN_IF_ERROR(Migrate(*writer, "state", StateMigrations()));
  TY_ASSIGN_OR_RETURN(HighWaterMark mark,
                      HighWaterMark::Open(absl::StrCat(path, kCommittedSuffix)));
  TY_RETURN_IF_ERROR(CheckForLostCommits(mark, *writer, options.accept_lost_commits));
  TY_ASSIGN_OR_RETURN(auto reader, Database::Open(path, Database::Mode::kReadOnly));
  return std::make_unique<SqliteStore>(std::move(writer), std::move(reader), std::move(mark));
}

absl::Status SkipGivenNumbers(const std::string& path, const std::string& mark_path) {
  if (!FileExists(mark_path)) return absl::OkStatus();
  TY_ASSIGN_OR_RETURN(const HighWaterMark mark_file, HighWaterMark::Open(mark_path));
  TY_ASSIGN_OR_RETURN(const std::optional<Watermark> mark, mark_file.Read());
  TY_ASSIGN_OR_RETURN(auto db, Database::Open(path, Database::Mode::kDurable));
  TY_RETURN_IF_ERROR(Migrate(*db, "state", StateMigrations()));
  core::Snapshot have;
  TY_RETURN_IF_ERROR(ReadMeta(*db, have));
  if (!mark.has_value() || mark->revision <= have.revision) return absl::OkStatus();
  return MoveTo(*mark, *db);
}

}  // namespace trainyard::store
