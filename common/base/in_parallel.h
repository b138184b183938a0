// Does many things at the same time, in threads that end with the call.
#pragma once

#include <cstddef>
#include <functional>

#include "absl/status/status.h"

namespace trainyard {

// Calls `function` for each number below `count`, in at most so many threads. Returns the first
// failure, after which no new call begins.
absl::Status InParallel(size_t count, size_t parallel,
                        const std::function<absl::Status(size_t)>& function);

}  // namespace trainyard
