// Writes records to rows of the state store, and reads them back. Writers replace the rows with the
// same key; readers fill the snapshot. docs/store_format.md describes the tables.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/core/lifecycle/snapshot.h"
#include "server/store/sqlite/database.h"

namespace trainyard::store {

// Writes a job. A new job brings its submission, which never changes; that of an array comes with
// the first job.
absl::Status WriteJob(Database& db, const core::JobRecord& job, bool is_new);
// Deletes a job with its metrics. Its attempts must have been deleted before.
absl::Status DeleteJob(Database& db, JobId job);
absl::Status DeleteSubmission(Database& db, JobId id);
// A job whose row is damaged is read as FAILED (DAMAGED_ROW). ReadAttempts refuses it if it may
// still run.
absl::Status ReadJobs(Database& db, core::Snapshot& snapshot);

absl::Status WriteAttempt(Database& db, const core::AttemptRecord& attempt);
absl::Status DeleteAttempts(Database& db, JobId job);
// An attempt whose row is damaged is read as LOST (DAMAGED_ROW) if it cannot be live. Returns
// DATA_LOSS if it may be, since then its devices are not known to be free.
absl::Status ReadAttempts(Database& db, core::Snapshot& snapshot);

absl::Status WriteWorker(Database& db, const core::WorkerRecord& worker);
absl::Status DeleteWorker(Database& db, const std::string& name);
// A worker whose row is damaged is read as UNREACHABLE and cordoned, and a device as quarantined.
absl::Status ReadWorkers(Database& db, core::Snapshot& snapshot);

absl::Status WriteCheckpoint(Database& db, const core::CheckpointRecord& checkpoint);
absl::Status DeleteCheckpoint(Database& db, const core::CheckpointRef& id);
absl::Status ReadCheckpoints(Database& db, core::Snapshot& snapshot);

absl::Status WriteRequest(Database& db, const core::RequestRecord& request);
absl::Status ReadRequests(Database& db, core::Snapshot& snapshot);

absl::Status WriteQuota(Database& db, const core::QuotaRecord& quota);
absl::Status DeleteQuota(Database& db, const std::string& subject);
absl::Status ReadQuotas(Database& db, core::Snapshot& snapshot);

absl::Status WriteReservation(Database& db, const core::ReservationRecord& reservation);
absl::Status DeleteReservation(Database& db, const std::string& name);
absl::Status ReadReservations(Database& db, core::Snapshot& snapshot);

// Writes all of the usage.
absl::Status WriteUsage(Database& db, const std::vector<core::UsageRecord>& usage);
absl::Status ReadUsage(Database& db, core::Snapshot& snapshot);

absl::Status WriteEvent(Database& db, const core::EventRecord& event);
// Deletes the history of a resource and of what belongs to it.
absl::Status DeleteEvents(Database& db, absl::string_view parent);
// Returns the events of `parent` (all events if it is empty) after `after_sequence`, in order, at
// most `limit`.
absl::StatusOr<std::vector<core::EventRecord>> ReadEvents(Database& db, absl::string_view parent,
                                                          int64_t after_sequence, int64_t limit);

// Writes the revision, the next numbers and the pool time of the snapshot.
absl::Status WriteMeta(Database& db, const core::Delta& delta);
absl::Status ReadMeta(Database& db, core::Snapshot& snapshot);

// The reason of a failure that only says that the true one cannot be read any more.
inline constexpr char kDamagedRow[] = "DAMAGED_ROW";
// Says in the log that a row cannot be read, and what becomes of it.
void TellDamage(absl::string_view name, absl::string_view consequence, const absl::Status& damage);

// Returns the record that a row belongs to, or DATA_LOSS if there is none, because somebody edited
// the file.
template <typename Map, typename Key>
absl::StatusOr<typename Map::mapped_type*> OwnerOf(Map& records, const Key& key) {
  const auto found = records.find(key);
  if (found == records.end()) return absl::DataLossError("a row belongs to no record");
  return &found->second;
}

}  // namespace trainyard::store
