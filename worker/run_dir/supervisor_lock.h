// Implements supervisor.lock, which the supervisor of a run directory holds while it lives, so that
// two never run one attempt, and so that others can tell without a pid if it lives.
#pragma once

#include <utility>

#include "absl/status/statusor.h"
#include "common/base/files.h"
#include "worker/run_dir/paths.h"

namespace trainyard::run_dir {

class SupervisorLock {
 public:
  // Returns FAILED_PRECONDITION (ALREADY_SUPERVISED) if another process holds it.
  static absl::StatusOr<SupervisorLock> Acquire(const RunDir& dir);

 private:
  explicit SupervisorLock(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

// Returns true if a process holds the lock. It takes no lock, so it never gets in the way of a
// supervisor that starts.
absl::StatusOr<bool> IsSupervised(const RunDir& dir);

}  // namespace trainyard::run_dir
