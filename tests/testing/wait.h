// Waits for what happens in another process without any notification.
#pragma once

#include <functional>

#include "absl/time/time.h"

namespace trainyard::testing {

// Checks every few milliseconds until `condition` is true. Returns false after `timeout`. Prefer an
// event if there is one: a stream, a future, the end of a process.
bool WaitUntil(const std::function<bool()>& condition, absl::Duration timeout = absl::Seconds(30));

}  // namespace trainyard::testing
