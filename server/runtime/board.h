// Shows what is committed to all threads. The writer puts each turn on the board before it answers,
// and readers never wait for the writer.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "common/base/mutex.h"
#include "server/core/lifecycle/snapshot.h"
#include "server/core/yard/yard.h"
#include "server/runtime/notifier.h"

namespace trainyard::runtime {

// A job as it is shown. It is immutable.
struct JobView {
  core::JobRecord record;
  std::vector<std::string> queue_reasons;
  // The newest attempt, which is null before the first one.
  std::shared_ptr<const core::AttemptRecord> attempt;
  int64_t checkpoint_step = 0;  // of the newest committed checkpoint; 0 if there is none
  // Bytes on the server's disk. Files that several checkpoints share count each time.
  // Outputs are among them.
  int64_t checkpoint_bytes = 0;
  core::StreamBytes streams;
};

// The board. It is thread-safe and borrows `notifier`.
class Board {
 public:
  explicit Board(Notifier& notifier) : notifier_(notifier) {}

  // The writer calls these to load everything again, or to apply a turn. They wake those who wait
  // for these jobs.
  void Load(const core::Yard& yard);
  void Publish(const core::Yard& yard, const core::Turn& turn);

  int64_t revision() const;
  // Returns the newest revision of which everybody who waits for its jobs has been told. A job may
  // be visible at a newer one.
  int64_t announced_revision() const { return announced_revision_; }
  // Returns null if there is no such job.
  std::shared_ptr<const JobView> FindJob(JobId job) const;
  std::shared_ptr<const core::AttemptRecord> FindAttempt(AttemptId attempt) const;
  std::shared_ptr<const core::CheckpointRecord> FindCheckpoint(core::CheckpointRef id) const;
  // Returns jobs with numbers below `before` (all if it is 0) and above `after`, newest first, at
  // most `limit` that `accept` takes. It looks at some thousand jobs at a time, so that no search
  // delays the writer. A job that changes in the meantime is seen before or after its change.
  std::vector<std::shared_ptr<const JobView>> ListJobs(
      int64_t before, size_t limit, const std::function<bool(const JobView&)>& accept,
      int64_t after = 0) const;
  // Counts what each user has within each project.
  struct Tally {
    int64_t queued_jobs = 0;
    int64_t devices = 0;  // held
    int64_t jobs = 0;     // in any state
    int64_t checkpoint_bytes = 0;
    core::StreamBytes streams;
    int64_t device_time_us = 0;  // of these jobs, over all attempts

    void Add(const Tally& other);
    friend bool operator==(const Tally&, const Tally&) = default;
  };
  std::map<core::UsageKey, Tally> Tallies() const;
  // Returns number and revision of the jobs that changed after `revision`, in no particular order.
  std::vector<std::pair<JobId, int64_t>> ChangedSince(int64_t revision) const;
  // Returns the attempts, oldest first.
  std::vector<std::shared_ptr<const core::AttemptRecord>> AttemptsOf(JobId job) const;
  // Returns the checkpoints in ascending order of their steps.
  std::vector<std::shared_ptr<const core::CheckpointRecord>> CheckpointsOf(JobId job) const;
  // Returns true if a job has the code archive, or the diff of one, with this digest, and `accept`
  // takes the user and the project of the job. `accept` is called under a lock.
  using AcceptOwner = std::function<bool(const std::string& user, const std::string& project)>;
  bool IsCodeUsed(
      const std::string& digest,
      const AcceptOwner& accept = [](const auto&, const auto&) { return true; }) const;
  // Returns the digests of all code that jobs of the user have.
  std::set<std::string> CodeOf(const std::string& user) const;
  // Returns true if a committed checkpoint has a file with this hash.
  bool IsReferenced(const std::string& hash) const;
  // Returns the hashes that have lost their last checkpoint since the last call.
  std::vector<std::string> TakeDropped();

 private:
  void PutAttempt(const core::AttemptRecord& attempt) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PutCheckpoint(const core::CheckpointRecord& checkpoint)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropCheckpoint(const core::CheckpointRef& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Count(const JobView& view, int64_t sign) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CountCode(const core::Submission& submission, int64_t sign)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PutJob(const core::Yard& yard, JobId job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Notifier& notifier_;
  std::atomic<int64_t> announced_revision_ = 0;
  mutable Mutex mutex_;
  int64_t revision_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<JobId, std::shared_ptr<const JobView>> jobs_ ABSL_GUARDED_BY(mutex_);
  std::map<AttemptId, std::shared_ptr<const core::AttemptRecord>> attempts_ ABSL_GUARDED_BY(mutex_);
  std::map<core::CheckpointRef, std::shared_ptr<const core::CheckpointRecord>> checkpoints_
      ABSL_GUARDED_BY(mutex_);
  std::map<core::UsageKey, Tally> tallies_ ABSL_GUARDED_BY(mutex_);
  struct CodeUse {
    std::string digest;
    std::string user;
    std::string project;

    friend auto operator<=>(const CodeUse&, const CodeUse&) = default;
  };
  std::map<CodeUse, int64_t> code_uses_ ABSL_GUARDED_BY(mutex_);   // the number of jobs
  std::map<std::string, int> references_ ABSL_GUARDED_BY(mutex_);  // by hash
  std::vector<std::string> dropped_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace trainyard::runtime
