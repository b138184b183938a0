// Takes checkpoints in that other servers have copied to buckets, so that jobs can go on here. Each
// becomes a checkpoint of an imported job, which is a record of the one that ran there.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/env.h"
#include "common/base/mutex.h"
#include "common/s3/client.h"
#include "server/access/caller.h"
#include "server/rpc/copied_checkpoint.h"
#include "server/rpc/services.h"
#include "server/runtime/blob_store.h"
#include "server/runtime/executor.h"
#include "trainyard/v1/bundle.pb.h"

namespace trainyard::rpc {

// The imports. The class is thread-safe, and borrows `services` and the clock. The keys are those
// of the server, so users can only name places that its administrator has allowed.
class CheckpointImports {
 public:
  using Connect =
      std::function<absl::StatusOr<std::unique_ptr<s3::Client>>(const std::string& bucket)>;
  // At most so many imports run at the same time. These and those that wait are at most
  // kImportsMax, of which one user has at most kImportsOfUserMax.
  static constexpr int kThreads = 2;
  static constexpr size_t kImportsMax = 64;
  static constexpr size_t kImportsOfUserMax = 8;
  // So many answers are kept for whoever asks for them, the newest ones.
  static constexpr size_t kAnswersMax = 256;

  struct Options {
    // s3://BUCKET or s3://BUCKET/FOLDER: all below is allowed to everybody who may submit.
    std::vector<std::string> places;
    Connect connect;
    int64_t bytes_max = int64_t{1} << 40;  // of a checkpoint
    // The objects of a job in the bucket: some hundred checkpoints with as many files as there may
    // be. They are listed only to find the newest one.
    int64_t objects_max = 200'000;
    absl::Duration time_max = absl::Hours(12);
    absl::Duration keep = absl::Minutes(10);  // the answer, for whoever asks for it
  };

  CheckpointImports(Options options, Services& services, Clock& clock)
      : options_(std::move(options)), services_(services), clock_(clock) {}
  ~CheckpointImports() { Stop(); }

  // Begins to import, or says how far it is; see BundleService.ImportCheckpoint. It does not block.
  absl::StatusOr<v1::ImportCheckpointResponse> Ask(const access::Caller& caller,
                                                   const v1::ImportCheckpointRequest& request);
  // Ends the imports in progress. It may be called again.
  void Stop();

 private:
  // An import that was asked for.
  struct Import {
    access::Caller caller;
    v1::ImportCheckpointRequest request;
    std::atomic<int64_t> bytes = 0;
    std::atomic<int64_t> total_bytes = 0;
    absl::Duration begin;  // of its run, since it may have waited for others
    // These are guarded by the mutex of the imports.
    bool is_done = false;
    absl::StatusOr<v1::Checkpoint> result = absl::UnavailableError("it is not there yet");
    absl::Duration end;
    s3::Client* client = nullptr;  // while it is used
  };
  // A copy in a bucket.
  struct Source {
    s3::Client& client;
    std::string prefix;  // of its keys
    std::string shown;
  };
  using Key = std::tuple<std::string, std::string, std::string>;  // user, place, project
  // A job into which imports bring their files: two, if one names a checkpoint by its step and the
  // other one takes the newest.
  struct Filling {
    int imports = 0;
    bool is_new = false;  // one of them has made it
    bool is_done = false;
  };

  absl::Status CheckPlace(const std::string& place) const;
  // Returns SERVER_BUSY if there are too many imports.
  absl::Status CheckRoomFor(const std::string& user) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Forgets the answers for which nobody has come, but for that of `key`.
  void DropAnswers(const Key& key, absl::Duration now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // These run on the executor.
  void Run(const std::shared_ptr<Import>& import);
  absl::StatusOr<v1::Checkpoint> Take(Import& import);
  absl::StatusOr<v1::Checkpoint> TakeFrom(s3::Client& client, Import& import);
  // Returns the job for a checkpoint of this step, which is known by its request or made. EndJob
  // follows, which deletes it if it has come to nothing.
  absl::StatusOr<JobId> BeginJob(core::ImportJob input, int64_t step);
  bool IsOfUse(JobId job, int64_t step, const std::map<JobId, int64_t>& uploads) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(jobs_mutex_);
  void EndJob(JobId job, const std::string& user, bool is_stored);
  // Makes a checkpoint of the job from the files of the copy.
  absl::StatusOr<v1::Checkpoint> Store(const Source& source, const CopiedFiles& copied, JobId job,
                                       Import& import);
  absl::Status Fetch(const Source& source, const core::CheckpointFile& file,
                     const std::string& digits, const runtime::UploadId& upload, Import& import);

  const Options options_;
  Services& services_;
  Clock& clock_;
  Mutex mutex_;
  std::atomic<bool> is_stopping_ = false;
  std::map<Key, std::shared_ptr<Import>> imports_ ABSL_GUARDED_BY(mutex_);
  // It is held while the runtime makes or deletes a job, so only the executor takes it.
  Mutex jobs_mutex_;
  std::map<JobId, Filling> filling_ ABSL_GUARDED_BY(jobs_mutex_);
  runtime::Executor executor_{kThreads, kImportsMax};  // it ends first
};

}  // namespace trainyard::rpc
