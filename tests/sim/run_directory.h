// The run directory of an attempt, as docs/run_directory.md has it, in memory.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/base/ids.h"
#include "tests/sim/world.h"
#include "worker/agent/agent_core.h"
#include "worker/run_dir/control.h"
#include "worker/run_dir/records.h"

namespace trainyard::sim {

struct RunDirectory {
  AttemptId id;
  Time begun = 0;
  // assignment.json
  bool is_assigned = false;
  int64_t fencing_token = 0;
  int world_size = 0;
  std::vector<agent::DesiredRank> ranks;
  int64_t resume_step = 0;
  size_t script = 0;  // of the job: how its trainers act
  int64_t failures = 0;
  absl::Duration run_time;
  bool spans_workers = false;
  // Everything else.
  run_dir::Lease lease;
  std::optional<run_dir::StopRequest> stop;  // control/stop
  int64_t checkpoint_request = 0;            // control/checkpoint
  std::map<std::string, std::string> rendezvous;
  std::set<int64_t> checkpoints;  // complete ones
  bool has_supervisor_record = false;
  // By rank; for ranks that have ended, their last report.
  std::map<int, run_dir::Progress> progress;
  std::map<int, run_dir::RankExit> rank_exits;
  std::optional<run_dir::AttemptExit> exit;
  bool is_locked = false;  // supervisor.lock is held by a process that lives
  // The log of its ranks, which grows by a line a second while they run.
  Time log_begun = 0;  // 0: not yet
  Time log_end = 0;    // 0: it still grows

  int64_t LogLines(Time now) const {
    if (log_begun == 0) return 0;
    return ((log_end > 0 ? log_end : now) - log_begun) / kSecond;
  }
  void EndLog(Time now) {
    if (log_begun > 0 && log_end == 0) log_end = now;
  }
};

}  // namespace trainyard::sim
