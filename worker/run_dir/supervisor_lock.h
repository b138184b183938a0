// supervisor.lock: held by the supervisor of a run directory while it lives, so that two never run
// one attempt, and so that others can tell whether it lives without a pid.
#pragma once

#include <utility>

#include "absl/status/statusor.h"
#include "common/base/files.h"
#include "worker/run_dir/paths.h"

namespace trainyard::run_dir {

class SupervisorLock {
 public:
  // FAILED_PRECONDITION (ALREADY_SUPERVISED) where another process holds it.
  static absl::StatusOr<SupervisorLock> Acquire(const RunDir& dir);

 private:
  explicit SupervisorLock(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

// True where somebody holds the lock. It takes nothing, so it never gets in the way of a supervisor
// that starts.
absl::StatusOr<bool> IsSupervised(const RunDir& dir);

}  // namespace trainyard::run_dir
