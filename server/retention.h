// Finds what the server keeps no longer: jobs that ended long ago, and what takes too much space.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
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

// Returns at most `max` deletions, those of jobs that ended first before the others. A job that
// says itself how long it is kept (Submission::retain_us) is older than that then; no other age
// matters to it. Jobs with the tag 'keep', those that are kept for ever, and what other jobs need
// are left out, but count. `now_us` is wall time.
std::vector<core::DeleteJob> FindExpired(const core::Yard& yard, const KeepRules& rules,
                                         int64_t now_us, size_t max);

// Returns the first jobs after `after`, at most `max`, whose logs and metrics must be measured:
// those that were never measured, and those that ran after `since_us` of wall time.
std::vector<JobId> FindUnmeasured(const core::Yard& yard, int64_t since_us, JobId after,
                                  size_t max);

}  // namespace trainyard
