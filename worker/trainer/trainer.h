// Takes one rank from its assignment to its result.
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
  // For a backend with devices of its own: makes the device of `rank`, which is one of the
  // assignment, the current device of the process, and fills in the memory that the rank may use.
  // It is called before the backend is made, and may be empty.
  std::function<absl::Status(const run_dir::Assignment& assignment, run_dir::RankAssignment& rank)>
      choose_device = {};
};

// Trains, and writes result.json as its last act. Call it before other threads are started, since
// it binds the process to the rank's processors. Borrows the signals and the clock.
run_dir::RankResult RunRank(const RankOptions& options, const Signals& signals, Clock& clock);

// Returns the class of a failure: transient if trying again can heal it, user_error if the job's
// author must change something.
run_dir::Outcome OutcomeOfStatus(const absl::Status& status);

}  // namespace trainyard::trainer
