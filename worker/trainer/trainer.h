// One rank from its assignment to its result.
#pragma once

#include <functional>
#include <string>

#include "common/base/env.h"
#include "worker/run_dir/assignment.h"
#include "worker/run_dir/records.h"
#include "worker/trainer/run/control.h"
#include "worker/trainer/run/gang.h"

namespace trainyard::trainer {

struct RankOptions {
  std::string run_dir;
  int rank = 0;
  Connect connect;
  bool shares_memory = true;  // see PrepareRun
  // For a backend with devices of its own, before it is made: makes the rank's device the one that
  // the process uses, and tells its memory where the assignment does not. May be empty.
  std::function<absl::Status(run_dir::RankAssignment& rank)> choose_device = {};
};

// Trains, and writes result.json as its last act. Binds the process to the rank's processors, so
// call it before other threads are started. Borrows the signals and the clock.
run_dir::RankResult RunRank(const RankOptions& options, const Signals& signals, Clock& clock);

// Class of a failure: what retrying can heal is transient, what the job's author must change is
// user_error.
run_dir::Outcome OutcomeOfStatus(const absl::Status& status);

}  // namespace trainyard::trainer
