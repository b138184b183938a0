// Counts what is in the yard, turn by turn, so that nobody has to look at all jobs for a scrape.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "server/core/lifecycle/snapshot.h"
#include "server/metrics/families.h"
#include "server/metrics/project_counts.h"

namespace trainyard::metrics {

// The counts. The class is thread-safe: the writer adds turns, and scrapes read. Counters begin
// with 0 at each start of the server, as Prometheus expects.
class YardCounts {
 public:
  explicit YardCounts(size_t projects_max = kProjectsMax) : projects_(projects_max) {}

  // Takes what the store holds when the server starts.
  void Load(const core::Snapshot& stored);
  // Takes what was committed. `now` is the time of the commit.
  void Take(const core::Delta& delta, absl::Time now);

  Families Collect(absl::Time now, const std::set<std::string>& private_projects) const;

 private:
  static constexpr size_t kJobStates = std::variant_size_v<core::JobState>;

  // The parts of a job that are counted.
  struct Job {
    uint8_t state = 0;
    bool saves_checkpoints = false;
    int32_t retries = 0;
    int32_t preemptions = 0;
    int64_t device_time_us = 0;
    std::optional<int64_t> end_us;  // unset until it has ended
    int64_t queued_us = 0;          // its key among the queued jobs of its project
    ProjectCounts* project = nullptr;
    std::shared_ptr<const core::Submission> submission;
  };

  // `queued_us` is since when the job waits, if it does and did not before.
  void PutJob(const core::JobRecord& record, int64_t queued_us)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropJob(JobId id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PutAttempt(const core::AttemptRecord& attempt) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PutCheckpoint(const core::CheckpointRecord& checkpoint)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<int64_t> ReadySince(const Job& job) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int64_t LongestWait(const ProjectCounts& counts, int64_t now_us) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CollectQueue(int64_t now_us, const std::set<std::string>& private_projects,
                    Families& families) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CollectJobs(int64_t now_us, Families& families) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CollectFleet(Families& families) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  ProjectTable projects_ ABSL_GUARDED_BY(mutex_);
  std::unordered_map<int64_t, Job> jobs_ ABSL_GUARDED_BY(mutex_);
  std::array<int64_t, kJobStates> by_state_ ABSL_GUARDED_BY(mutex_) = {};
  // The devices (worker, device) that attempts hold that have not ended.
  std::map<AttemptId, std::vector<std::pair<std::string, std::string>>> live_
      ABSL_GUARDED_BY(mutex_);
  // For each job with a running attempt: when its training was safe last, because it began or a
  // checkpoint was committed.
  std::map<JobId, int64_t> safe_us_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, core::WorkerRecord> workers_ ABSL_GUARDED_BY(mutex_);
  std::map<core::FailureClass, int64_t> failures_ ABSL_GUARDED_BY(mutex_);
  int64_t retries_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t preemptions_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t checkpoints_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace trainyard::metrics
