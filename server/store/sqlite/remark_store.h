// Keeps what is known of jobs besides their runs: notes and tags that people gave them afterwards,
// and what came out when they were run again. It has a file of its own, since it changes at other
// times than jobs do, and since its commits must delay none.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/ids.h"
#include "common/base/mutex.h"
#include "server/store/sqlite/database.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::store {

// The remarks on one job. They are immutable.
struct Remarks {
  std::string note;
  std::set<std::string> tags;
  std::map<JobId, v1::Verification> verifications;  // by the job that was the second run
};

// A job as the store knows it. The number of a job that a backup does not know is given again, so
// remarks belong to a number and a uid: remarks of another uid are those of a job that is gone.
struct RemarkedJob {
  JobId number;
  std::string uid;
};

inline constexpr size_t kJobNoteBytesMax = size_t{4} << 10;

// The store. It is thread-safe. What a call has changed is on disk when it returns. Find looks into
// memory alone; the others block on the disk.
class RemarkStore {
 public:
  // Opens a file, and makes it with mode 0600 if it is not there.
  static absl::StatusOr<std::unique_ptr<RemarkStore>> Open(const std::string& path);

  // Sets the note if one is given, where an empty one means none, then removes and adds tags, all
  // in one transaction.
  absl::Status Annotate(const RemarkedJob& job, const std::optional<std::string>& note,
                        const std::vector<std::string>& add_tags,
                        const std::vector<std::string>& remove_tags);
  // Keeps the result of a second run. One that is there already stays.
  absl::Status AddVerification(const RemarkedJob& job, const v1::Verification& verification);
  // Forgets everything about a job.
  absl::Status Forget(JobId job);

  // Returns the remarks on a job, or null if there are none.
  std::shared_ptr<const Remarks> Find(const RemarkedJob& job) const;
  // Returns the jobs that have remarks.
  std::vector<RemarkedJob> ListJobs() const;

 private:
  struct Known {
    std::string uid;
    std::shared_ptr<const Remarks> remarks;
  };

  explicit RemarkStore(std::unique_ptr<Database> db) : db_(std::move(db)) {}
  absl::Status Load();
  // Deletes what the file has of the job's number.
  absl::Status DeleteRows(JobId job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(file_mutex_);
  // Returns a copy of the remarks on a job, and deletes those of another job of this number.
  absl::StatusOr<Remarks> Edit(const RemarkedJob& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(file_mutex_);
  void Show(const RemarkedJob& job, Remarks remarks);

  Mutex file_mutex_;
  std::unique_ptr<Database> db_ ABSL_PT_GUARDED_BY(file_mutex_);
  mutable Mutex mutex_;  // taken after file_mutex_
  std::map<JobId, Known> known_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace trainyard::store
