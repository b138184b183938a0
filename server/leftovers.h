// Finds what the state directory holds and the database does not know. There are two cases.
//
// In the first case a job was deleted, and the server died before it had removed the files. The
// database has the event of that, and nobody needs the files any more.
//
// In the second case the database was restored from a backup. The logs, metrics and checkpoints
// that are newer than the backup are then unknown to it, and it will give their numbers to other
// jobs and attempts. Somebody may still want these files, and they must not mix with the new ones.
// Therefore they are moved aside, and never deleted.
#pragma once

#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "server/core/lifecycle/snapshot.h"
#include "server/runtime/blob_store.h"
#include "server/runtime/board.h"
#include "server/runtime/log_store.h"
#include "server/store/metrics_store.h"
#include "server/store/store.h"

namespace trainyard {

// Returns true if there was such a job and it was deleted, of which its last event tells. The
// number of a job alone says nothing: after a restore, numbers of jobs that were lost are not given
// out again.
absl::StatusOr<bool> WasDeleted(store::Store& store, JobId job);
// Does the same, and asks the store only about jobs that it has not.
absl::StatusOr<bool> WasDeleted(const core::Snapshot& stored, store::Store& store, JobId job);

// Jobs whose logs, or whose metrics, are to be deleted.
struct DeletedStreams {
  std::set<JobId> logs;
  std::set<JobId> metrics;
};
// Returns the logs and metrics that were deleted, by themselves or with their jobs, and are still
// there.
absl::StatusOr<DeletedStreams> FindDeletedStreams(const core::Snapshot& stored, store::Store& store,
                                                  const runtime::LogStore& logs,
                                                  store::MetricsStore& metrics);

// Returns the folder to which a server that starts at `now` moves files: <state_dir>/orphans/<UTC>.
// It is laid out as the state directory is.
std::string OrphanFolder(const std::string& state_dir, absl::Time now);

// Moves logs and metrics of attempts that the database never had to `folder`. `metrics` is the
// store <state_dir>/metrics.db. This must be done before an attempt can get one of their numbers.
absl::Status SetStreamsAside(const core::Snapshot& stored, store::Store& store,
                             const std::string& state_dir, const std::string& folder,
                             runtime::LogStore& logs, store::MetricsStore& metrics);

// Moves the files that no committed checkpoint names to `folder`. Files that were left by a server
// that died while it removed a checkpoint look the same, so they are moved too.
void SetBlobsAside(const std::string& folder, runtime::BlobStore& blobs,
                   const runtime::Board& board);

}  // namespace trainyard
