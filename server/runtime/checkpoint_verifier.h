// Hashes the files of checkpoints when somebody doubts them, and has the yard note what it finds.
// Nobody is believed: a worker or a user may ask, but only the server's own look counts.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "server/runtime/blob_store.h"
#include "server/runtime/board.h"
#include "server/runtime/executor.h"
#include "server/runtime/runtime.h"

namespace trainyard::runtime {

// The verifier. It is thread-safe, and borrows everything that it is given. It hashes one
// checkpoint at a time, so that one thread of the executor at most is busy with it. Those who ask
// about a checkpoint that is being hashed, or that waits for it, share the answer.
class CheckpointVerifier {
 public:
  // Called exactly once with the record, in which `damage` is up to date, or with NOT_FOUND.
  using Done =
      std::function<void(absl::StatusOr<std::shared_ptr<const core::CheckpointRecord>> record)>;

  CheckpointVerifier(BlobStore& blobs, Board& board, Executor& executor, Runtime& runtime)
      : blobs_(blobs), board_(board), executor_(executor), runtime_(runtime) {}

  // Verifies the checkpoint. The answer comes when what was found is durable.
  void Verify(core::CheckpointRef id, Done done);
  // Answers those who wait with UNAVAILABLE, except for the checkpoint that is being hashed.
  void Stop();

 private:
  void VerifyFirst();
  void Judge(const core::CheckpointRecord& seen);
  // Ends the work on the first of the queue, and begins with the next.
  void Finish(const absl::Status& status);

  BlobStore& blobs_;
  Board& board_;
  Executor& executor_;
  Runtime& runtime_;

  Mutex mutex_;
  std::deque<core::CheckpointRef> queue_ ABSL_GUARDED_BY(mutex_);  // the first is being worked on
  std::map<core::CheckpointRef, std::vector<Done>> waiting_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace trainyard::runtime
