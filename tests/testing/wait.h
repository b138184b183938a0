// Waiting for what happens in another process and announces itself to nobody.
#pragma once

#include <functional>

#include "absl/time/time.h"

namespace trainyard::testing {

// Looks every few milliseconds until `condition` holds; false after `timeout`. Prefer an event
// where there is one: a stream, a future, the end of a process.
bool WaitUntil(const std::function<bool()>& condition, absl::Duration timeout = absl::Seconds(30));

}  // namespace trainyard::testing
