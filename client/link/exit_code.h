// The exit codes of the client; scripts rely on them.
#pragma once

#include "absl/status/status.h"

namespace trainyard::link {

enum ExitCode : int {
  kOk = 0,
  kFailed = 1,
  kUsage = 2,
  kNotFound = 3,
  kNotSignedIn = 4,
  kNotAllowed = 5,
  kConflict = 6,
  kQuota = 7,
  kJobEndedBadly = 8,
  kUnreachable = 9,
  kTimedOut = 124,
  kInterrupted = 130,
};

ExitCode ExitCodeOf(const absl::Status& status);

}  // namespace trainyard::link
