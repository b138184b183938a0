// Replays a trace through the real core, in virtual time: the yard with its stops, claims and
// accounts, and the policy. The same trace and options give the same history.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/core/lifecycle/config.h"
#include "server/core/scheduling/policy.h"
#include "tests/replay/share_meter.h"
#include "tests/replay/simulated_pool.h"
#include "tests/replay/trace.h"

namespace trainyard::replay {

// Wall time at which a replay starts.
inline constexpr int64_t kStartOfTrace = 1'790'000'000 * core::kSecond;

struct ReplayOptions {
  core::PolicyOptions policy;
  core::Config config;  // its lease is not used: workers without news do not sync
  // Everything happens on multiples of this. The yard decides at each at which something is due.
  int64_t tick_us = core::kSecond;
  // Called with the whole history, as it is written. It may be null.
  std::function<void(const core::EventRecord&)> on_event;
};

// One job of the trace; the jobs of an array are separate. Times are since the start of the trace.
struct JobResult {
  int64_t trace_job = 0;  // index
  std::string state;
  int64_t ready_us = 0;    // submitted, and nothing held it back
  int64_t placed_us = -1;  // first; -1: never
  int64_t end_us = 0;
  int64_t device_time_us = 0;
  int64_t lost_us = 0;  // device time of work that was done twice
  int32_t preemptions = 0;

  friend bool operator==(const JobResult&, const JobResult&) = default;
};

struct PassTime {
  int64_t queued = 0;  // jobs
  int64_t ns = 0;      // of processor time; it has no influence on the history
};

struct ReplayResult {
  std::vector<JobResult> jobs;
  std::vector<UserShare> shares;
  int64_t last_submit_us = 0;
  int64_t work_until_last_submit_us = 0;  // device time of work that stood still then
  int64_t makespan_us = 0;
  Loss preempted;
  Loss resized;
  int64_t turns = 0;
  std::vector<PassTime> passes;

  // Everything but the measured times.
  bool SameHistory(const ReplayResult& other) const;
};

// Replays a trace. Returns INTERNAL if the replay does not come to an end: nothing runs, or it
// takes too long, and jobs still wait.
absl::StatusOr<ReplayResult> Replay(const Trace& trace, const ReplayOptions& options);

}  // namespace trainyard::replay
