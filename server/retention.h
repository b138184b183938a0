// Finds what the server keeps no longer: jobs that ended long ago, and what takes too much space.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "server/core/yard/yard.h"

namespace trainyard {

// The server never deletes jobs with this tag by itself.
inline constexpr absl::string_view kKeepTag = "keep";

// Says how much of one kind of thing stays. Jobs that ended last go last.
struct KeepRule {
  absl::Duration age = absl::InfiniteDuration();  // since the end of the job
  int64_t jobs = std::numeric_limits<int64_t>::max();
  int64_t bytes = std::numeric_limits<int64_t>::max();

  bool is_forever() const { return *this == KeepRule(); }
  friend bool operator==(const KeepRule&, const KeepRule&) = default;
};

// Parses "90d", "5000 jobs", "500 GiB", or several of these with commas, all of which then count;
// "forever" is no limit. Returns INVALID_ARGUMENT with the part that is wrong.
absl::StatusOr<KeepRule> ParseKeepRule(absl::string_view text);

// Rules for jobs that have ended. That of jobs is about a job with all that it has.
struct KeepRules {
  KeepRule jobs = {};
  KeepRule checkpoints = {};
  KeepRule logs = {};
  KeepRule metrics = {};

  bool are_forever() const {
    return jobs.is_forever() && checkpoints.is_forever() && logs.is_forever() &&
           metrics.is_forever();
  }
};

// Finds what is kept no longer, in steps, so that a look at 100,000 jobs holds up no turn of the
// server. A job that says itself how long it is kept (Submission::retain_us) is older than that
// then; no other age matters to it. Jobs with the tag 'keep', those that are kept for ever, and
// what other jobs need are left out, but count. The class is not thread-safe.
class RetentionReview {
 public:
  // Returns true for a job that people want to keep although its spec does not say so.
  using IsKept = std::function<bool(const core::JobRecord&)>;

  // `now_us` is wall time.
  RetentionReview(
      const KeepRules& rules, int64_t now_us,
      IsKept is_kept = [](const core::JobRecord&) { return false; });

  // Looks at up to `max` jobs. Returns false if that was the end.
  bool Step(const core::Yard& yard, size_t max);
  // Returns at most `max` deletions, once, after the last step. Those of jobs that ended first come
  // before the others.
  std::vector<core::DeleteJob> TakeDeletions(size_t max);

 private:
  // Adds up one kind of thing.
  class Budget {
   public:
    explicit Budget(const KeepRule& rule) : rule_(rule) {}

    void Count(int64_t bytes) {
      ++jobs_;
      bytes_ += bytes;
    }
    // Returns true if the things of a job that was counted have no room any more.
    bool IsOver() const { return jobs_ > rule_.jobs || bytes_ > rule_.bytes; }
    bool IsOld(const core::JobRecord& job, int64_t now_us) const;

   private:
    const KeepRule rule_;
    int64_t jobs_ = 0;
    int64_t bytes_ = 0;
  };
  struct Sizes {
    int64_t checkpoints = 0;
    int64_t outputs = 0;
    core::StreamBytes streams;

    int64_t sum() const { return checkpoints + outputs + streams.sum(); }
  };

  // Finds the jobs that have ended, and counts those that stay whatever the rules say.
  bool Collect(const core::Yard& yard, size_t max);
  // Counts a job that stays.
  void Keep(const core::Yard& yard, const core::JobRecord& job);
  // Counts a job, and adds what must be deleted of it.
  void Decide(const core::Yard& yard, const core::JobRecord& job);
  static Sizes SizesOf(const core::Yard& yard, const core::JobRecord& job);
  void KeepParts(const core::JobRecord& job, const Sizes& sizes);

  const KeepRules rules_;
  const int64_t now_us_;
  const IsKept is_kept_;
  Budget jobs_;
  Budget checkpoints_;
  Budget logs_;
  Budget metrics_;
  JobId last_;
  bool is_collected_ = false;
  std::vector<std::pair<int64_t, JobId>> ended_;  // by their end; the next one is the last
  std::vector<core::DeleteJob> deletions_;
};

// Returns the first jobs after `after`, at most `max`, whose logs and metrics must be measured:
// those that were never measured, and those that ran after `since_us` of wall time.
std::vector<JobId> FindUnmeasured(const core::Yard& yard, int64_t since_us, JobId after,
                                  size_t max);

}  // namespace trainyard
