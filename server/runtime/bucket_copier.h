// Copies checkpoints to a folder of a bucket once they are committed, and removes copies whose
// checkpoints are gone. Neither training nor commits wait for it.
//
// The bucket has what the server has. A copy goes when its checkpoint goes, except for one: while a
// checkpoint of the job has no copy yet, the newest copy of the job stays, so that there is always
// one to go on from. A copy that the database does not know stays as well unless its job is known
// to have been deleted: it is what a restored backup lacks.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/env.h"
#include "common/base/mutex.h"
#include "common/s3/client.h"
#include "server/core/yard/yard.h"
#include "server/runtime/blob_store.h"
#include "server/runtime/board.h"
#include "server/runtime/copy_folder.h"
#include "server/runtime/turn_loop.h"

namespace trainyard::runtime {

// The copier. It is thread-safe, has a thread of its own, and borrows what it is given.
class BucketCopier {
 public:
  // The "sha256:<64 hex digits>" of each file of a checkpoint, by its name.
  using Digests = std::map<std::string, std::string>;
  struct Options {
    std::string place;  // s3://BUCKET/FOLDER
    // Makes a client of the bucket. It is called again if that fails.
    std::function<absl::StatusOr<std::unique_ptr<s3::Client>>()> connect;
    // Returns the text of the manifest.
    std::function<absl::StatusOr<std::string>(const core::CheckpointRecord& checkpoint,
                                              const Digests& digests)>
        describe;
    // Tells whether a job that is not on the board was deleted. Otherwise it has never been here,
    // or was lost with a restore.
    std::function<absl::StatusOr<bool>(JobId job)> was_deleted;
    // Sees to it that no new job gets the number of this one or a lower one.
    std::function<void(JobId last)> skip_numbers;
    // Has somebody verify a checkpoint whose files are not what they should be.
    std::function<void(const core::CheckpointRef& id)> doubt;
    // Posts the note to the writer.
    std::function<void(core::NoteCheckpointCopy note, PostDone done)> note;
    // The checkpoints that may wait. Beyond that, the oldest that a newer one of the same job
    // replaces is passed over, until nothing else waits.
    size_t queue_max = 10'000;
    // The pauses after failures double from the first to the longest.
    absl::Duration first_pause = absl::Seconds(1);
    absl::Duration longest_pause = absl::Minutes(5);
  };
  // Numbers for the metrics of the server, since its start.
  struct Figures {
    int64_t waiting = 0;    // checkpoints
    int64_t oldest_us = 0;  // the time at which the oldest of them was committed; 0 if none waits
    int64_t copied = 0;     // checkpoints
    int64_t sent_bytes = 0;
    int64_t removed = 0;   // copies
    int64_t failures = 0;  // tries
  };

  // Returns INVALID_ARGUMENT for a malformed place.
  static absl::StatusOr<std::unique_ptr<BucketCopier>> Create(Options options, BlobStore& blobs,
                                                              const Board& board, Clock& clock,
                                                              Rng& rng);
  ~BucketCopier();

  // Starts the thread, which looks through the bucket and then sends all checkpoints that have no
  // copy. The id of the server marks the folder, and `next_job` is the number that the next job
  // gets.
  void Start(std::string server_id, int64_t next_job);
  // Takes what was committed and is on the board. It gives up the files of deleted checkpoints, so
  // they can be removed after that.
  void Take(const core::Turn& turn);
  Figures figures() const;
  // Ends the thread and the call in progress. What waits is taken up by the next start. It may be
  // called again.
  void Stop();

 private:
  struct Waiting {
    int64_t number = 0;  // in the order of the queue
    int64_t create_us = 0;
    std::vector<std::string> hashes = {};  // of the files
    std::shared_ptr<const void> pin = {};
  };
  using Copies = std::map<core::CheckpointRef, bool>;  // see CopyFolder::List
  enum class Work { kStop, kFill, kSweep, kCopy };

  BucketCopier(Options options, s3::Location location, BlobStore& blobs, const Board& board,
               Clock& clock, Rng& rng);
  std::string FolderOf(JobId job) const;
  std::string PlaceOf(const core::CheckpointRef& id) const;
  // Returns true if the checkpoint ought to have a copy and has none.
  bool IsWanted(const core::CheckpointRecord& checkpoint) const;
  void Enqueue(const core::CheckpointRecord& checkpoint) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Drop(const core::CheckpointRef& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PassOver() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Sweep(JobId job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // These run on the thread.
  void Run();
  Work Await();
  absl::Status Do(Work work);
  // Waits after a failure. Returns false at the end.
  bool Pause(absl::Duration duration);
  absl::Status Open();
  // Calls the function for each checkpoint that the server has, until it returns false.
  void ForEachCheckpoint(
      const std::function<bool(const core::CheckpointRecord& checkpoint)>& function) const;
  // Queues checkpoints that have no copy.
  void Fill();
  absl::Status SweepNext();
  // Finds the jobs of the bucket that the server does not know, and the copies that are not there.
  absl::Status CompareAll(const Copies& copies);
  absl::Status NoteIfGone(const core::CheckpointRecord& checkpoint, const Copies& copies);
  // Returns true if the job is not here, and nobody has deleted it.
  absl::StatusOr<bool> IsUnknown(JobId job) const;
  // Removes the copies of one job that may go. `deleted` has checkpoints that were deleted lately.
  absl::Status SweepJob(JobId job, const Copies& copies,
                        const std::set<core::CheckpointRef>& deleted);
  absl::Status CopyNext();
  absl::Status CopyPinned(const core::CheckpointRef& id);
  // Removes the blobs that no checkpoint has any more.
  void RemoveUnneeded(const std::vector<std::string>& hashes);
  absl::Status Copy(const core::CheckpointRecord& checkpoint);
  absl::Status Note(const core::CheckpointRecord& checkpoint, std::string copy,
                    std::string failure);
  // Hashes the files of a checkpoint by both hashes.
  absl::StatusOr<std::vector<CopyFolder::File>> Hash(
      const core::CheckpointRecord& checkpoint) const;

  const Options options_;
  const s3::Location location_;
  BlobStore& blobs_;
  const Board& board_;
  Clock& clock_;
  Rng& rng_;
  std::string server_id_;
  int64_t next_job_ = 0;  // at the start

  // Only the thread uses these.
  std::unique_ptr<s3::Client> client_;
  std::optional<CopyFolder> folder_;
  bool was_copy_ = false;    // the last work
  bool has_looked_ = false;  // through the whole bucket since the start
  // Jobs that have copies and were not known when the bucket was looked through. Should a new job
  // have such a number, nothing of it is sent there.
  std::set<JobId> unknown_;
  std::thread thread_;

  std::atomic<bool> is_stopping_ = false;
  std::atomic<int64_t> sent_bytes_ = 0;
  mutable Mutex mutex_;
  CondVar changed_;
  s3::Client* cancelled_by_stop_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::map<core::CheckpointRef, Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
  std::map<int64_t, core::CheckpointRef> order_ ABSL_GUARDED_BY(mutex_);  // by Waiting::number
  int64_t next_number_ ABSL_GUARDED_BY(mutex_) = 0;
  // Some checkpoints were passed over, or there was no start yet.
  bool is_incomplete_ ABSL_GUARDED_BY(mutex_) = true;
  std::set<JobId> sweeps_ ABSL_GUARDED_BY(mutex_);  // jobs whose copies may have to go
  bool sweeps_all_ ABSL_GUARDED_BY(mutex_) = true;
  // Jobs of which a copy stays only until a newer one is whole.
  std::set<JobId> lagging_ ABSL_GUARDED_BY(mutex_);
  // Checkpoints that were deleted since the last sweep of their jobs.
  std::set<core::CheckpointRef> deleted_ ABSL_GUARDED_BY(mutex_);
  bool has_started_ ABSL_GUARDED_BY(mutex_) = false;
  Figures figures_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace trainyard::runtime
