// Defines an attempt as the daemon knows it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/base/ids.h"
#include "worker/agent/agent_core.h"
#include "worker/agent/report.h"
#include "worker/run_dir/isolation.h"
#include "worker/run_dir/records.h"

namespace trainyard::agent {

// The daemon's copy of one run directory, and what else it remembers of the attempt.
struct Attempt {
  AttemptId id;
  LocalAttempt local;
  bool has_directory = true;  // false if the attempt failed before it had one
  // These come from assignment.json.
  bool is_assigned = false;
  std::vector<DesiredRank> ranks;  // on this host, ascending
  run_dir::IsolationLevel isolation = run_dir::IsolationLevel::kUnknown;
  int64_t global_batch = 0;  // samples per step; 0 while unknown
  // These come from the ranks and from the supervisor.
  std::map<int, run_dir::Progress> progress;  // by rank
  std::optional<run_dir::AttemptExit> exit;
  std::map<std::string, double> final_metrics;  // from the result of the lowest rank
  // These belong to this run of the daemon.
  int launches = 0;
  absl::Duration launched_uptime;
  bool is_watched = false;  // true if changes of its files are reported; otherwise they are polled
  absl::Duration look_due;  // by then its files are read even if no change was reported
};

// Returns the attempt as it is reported to the server.
ReportedAttempt Describe(const Attempt& attempt);

// Returns the time left by the measured speed, or nothing while it is unknown.
std::optional<absl::Duration> TimeLeft(const run_dir::Progress& progress, int64_t global_batch);

}  // namespace trainyard::agent
