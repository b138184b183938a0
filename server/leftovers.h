// What the state directory holds of which the database knows nothing. There are two ways to that.
//
// A job was deleted, and the server died before it had removed the files. Then the number of the
// job is one that the database has given away, and nobody wants the files any more.
//
// Or the database was restored from a backup. Then there are logs, metrics and checkpoints that are
// newer than the database, which will give their numbers to others. They may still be wanted, and
// they must not mix with what comes. Therefore they are moved aside, and never deleted.
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

namespace trainyard {

// Returns the jobs that were deleted and have logs or metrics yet.
absl::StatusOr<std::set<JobId>> DeletedJobsWithFiles(const core::Snapshot& stored,
                                                     const runtime::LogStore& logs,
                                                     store::MetricsStore& metrics);

// Returns the folder to which a server that starts at `now` moves things:
// <state_dir>/orphans/<UTC>. It is laid out as the state directory is.
std::string OrphanFolder(const std::string& state_dir, absl::Time now);

// Moves logs and metrics of attempts that the database never had to `folder`. `metrics` is the
// store <state_dir>/metrics.db. Must be done before an attempt can get one of their numbers.
absl::Status SetStreamsAside(const core::Snapshot& stored, const std::string& state_dir,
                             const std::string& folder, runtime::LogStore& logs,
                             store::MetricsStore& metrics);

// Moves the files that no committed checkpoint names to `folder`. What is left by a server that
// died while it removed a checkpoint looks the same, so it is moved too.
void SetBlobsAside(const std::string& folder, runtime::BlobStore& blobs,
                   const runtime::Board& board);

}  // namespace trainyard
