// Keeps sweeps and their records in a file of its own. A record is only ever added to.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "common/base/mutex.h"
#include "server/core/sweeping/record.h"
#include "server/store/sqlite/database.h"
#include "trainyard/v1/job.pb.h"
#include "trainyard/v1/spec.pb.h"

namespace trainyard::store {

// The sweeps that are kept, together.
inline constexpr int64_t kSweepsMax = 10'000;

// A sweep as it was asked for. It never changes.
struct SweepRecord {
  int64_t number = 0;
  std::string uid;
  std::string user;
  int64_t create_us = 0;
  std::string request_id;     // empty for none
  std::string request_hash;   // what requests with the same meaning have in common
  v1::JobSpec spec;           // resolved; `sweep` says what was chosen for what was left open
  v1::SubmitOptions options;  // of each of its jobs
};

// The job that trains a trial. The jobs of a trial are numbered from 0.
struct TrialJob {
  int32_t trial = 0;
  int32_t generation = 0;
  JobId job;

  friend bool operator==(const TrialJob&, const TrialJob&) = default;
};

// All that is known of what a sweep did.
struct SweepHistory {
  std::vector<core::sweeping::Entry> entries;
  std::vector<TrialJob> jobs;  // in order of trials and generations
};

// The store. It is thread-safe. What a call has changed is on disk when it returns. All calls block
// on the disk.
class SweepStore {
 public:
  // Opens a file, and makes it with mode 0600 if it is not there.
  static absl::StatusOr<std::unique_ptr<SweepStore>> Open(const std::string& path);

  // Keeps a sweep, and returns its number, which is never used again. Returns RESOURCE_EXHAUSTED
  // (TOO_MANY_SWEEPS).
  absl::StatusOr<int64_t> Create(const SweepRecord& sweep);
  // Returns all sweeps, in order of their numbers.
  absl::StatusOr<std::vector<SweepRecord>> ReadAll();
  absl::StatusOr<SweepHistory> ReadHistory(int64_t sweep);
  // Adds entries to the record of a sweep, all or none of them; `first` is the sequence of the
  // first one, and the first of all is 1.
  absl::Status Append(int64_t sweep, int64_t first,
                      const std::vector<core::sweeping::Entry>& entries);
  // Notes the job of a trial. One that is noted already stays.
  absl::Status AddJob(int64_t sweep, const TrialJob& job);
  // Forgets a sweep. It is fine if there is none.
  absl::Status Delete(int64_t sweep);

 private:
  explicit SweepStore(std::unique_ptr<Database> db) : db_(std::move(db)) {}

  Mutex mutex_;
  std::unique_ptr<Database> db_ ABSL_PT_GUARDED_BY(mutex_);
};

}  // namespace trainyard::store
