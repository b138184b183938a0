// The figures that say how good a replay was, and the figures of several policies side by side.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tests/replay/replay.h"
#include "tests/replay/trace.h"

namespace trainyard::replay {

// Percentiles by nearest rank, in microseconds; 0 without samples.
struct Spread {
  int64_t count = 0;
  int64_t p50 = 0;
  int64_t p90 = 0;
  int64_t p99 = 0;
  int64_t max = 0;
  int64_t mean = 0;
};
Spread SpreadOf(std::vector<int64_t> samples);

struct WaitClass {
  std::string name;  // "all", "priority 10", "8 devices"
  Spread wait;       // from ready to first placed
};

// Shares in thousandths.
struct Score {
  // The work that was done up to the last submission, as a share of the device time of the whole
  // pool until then; and all work, until the end of the last job.
  int64_t use_until_last_submit = 0;
  int64_t use_until_end = 0;
  int64_t makespan_us = 0;
  std::vector<WaitClass> waits;
  // Taken over the users' UserShare::served: Jain's index, (sum x)^2 / (n sum x^2), and the least.
  int64_t fairness = 0;
  int64_t least_served = 0;
  std::string least_served_user;
  int64_t ended_well = 0;  // jobs that have succeeded
  Loss preempted;
  Loss resized;
  int64_t lost_most_us = 0;  // work done twice by one job
  Spread pass_ns;
  Spread pass_ns_long_queue;  // while at least nine tenths of all jobs were queued
  int64_t turns = 0;
};
Score ScoreOf(const Trace& trace, const ReplayResult& result);

const Spread& WaitOf(const Score& score, absl::string_view wait_class);  // must exist

// Rows of figures, a column a policy. `format`: text, markdown or json; INVALID_ARGUMENT otherwise.
absl::StatusOr<std::string> Compare(const Trace& trace,
                                    const std::vector<std::pair<std::string, Score>>& scores,
                                    absl::string_view format);

}  // namespace trainyard::replay
