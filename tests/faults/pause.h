// Lets time pass where that is the fault itself: an outage lasts, a line is cut for a while.
// Everything else waits for what happens.
#pragma once

#include "absl/time/time.h"
#include "common/base/env.h"
#include "tests/testing/wait.h"

namespace trainyard::testing {

inline void Pause(absl::Duration length) {
  const absl::Duration end = Clock::Real()->Uptime() + length;
  WaitUntil([end] { return Clock::Real()->Uptime() >= end; }, absl::InfiniteDuration());
}

}  // namespace trainyard::testing
