// Lets the processes of a program find each other before they begin.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/env.h"
#include "worker/program/environment.h"
#include "worker/program/port.h"
#include "worker/run_dir/assignment.h"
#include "worker/run_dir/paths.h"

namespace trainyard::program {

// All ranks meet by the keys of the run directory, which workers mirror between hosts.
struct Meeting {
  Place place;
  std::optional<PortClaim> claim;  // of rank 0
};

// Waits until all ranks have come, for at most `timeout`. `is_stopped` is asked meanwhile. Returns
// DEADLINE_EXCEEDED with the rank that has not come, or CANCELLED.
absl::StatusOr<Meeting> Meet(const run_dir::RunDir& dir, const run_dir::Assignment& assignment,
                             int rank, bool is_per_host, absl::Duration timeout, Clock& clock,
                             const std::function<bool()>& is_stopped);

}  // namespace trainyard::program
