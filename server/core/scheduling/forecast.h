// Says when a waiting job will start, by what is known now.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/core/scheduling/pass.h"

namespace trainyard::core {

struct Forecast {
  std::optional<int64_t> start_in_us;  // unset: unknown
  std::string basis;
};

// Lets jobs end when they are expected to, and start in their order without overtaking. `ahead` has
// the waiting jobs that come before this one. The job may well start sooner, and later if a job is
// submitted that goes before it.
Forecast ForecastStart(const PassInput& input, const PassState& state,
                       const std::vector<JobId>& ahead, const QueuedJob& job);

}  // namespace trainyard::core
