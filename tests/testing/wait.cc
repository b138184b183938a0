// Checks a condition again and again, since the events of other processes cannot be waited for.
#include "tests/testing/wait.h"

#include "common/base/env.h"

namespace trainyard::testing {

bool WaitUntil(const std::function<bool()>& condition, absl::Duration timeout) {
  Clock& clock = *Clock::Real();
  const absl::Duration deadline = clock.Uptime() + timeout;
  while (!condition()) {
    if (clock.Uptime() > deadline) return false;
    clock.SleepFor(absl::Milliseconds(5));
  }
  return true;
}

}  // namespace trainyard::testing
