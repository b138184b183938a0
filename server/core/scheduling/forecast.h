// Predicts when a waiting job will start, from what is known now.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/core/scheduling/pass.h"

namespace trainyard::core {

struct Forecast {
  std::optional<int64_t> start_in_us;  // unset if unknown
  std::string basis;
};

// Assumes that jobs end when they are expected to, and that they start in their order without
// overtaking. `ahead` holds the waiting jobs that come before this one. The job may well start
// sooner, and it starts later if a job is submitted that goes before it.
Forecast ForecastStart(const PassInput& input, const PassState& state,
                       const std::vector<JobId>& ahead, const QueuedJob& job);

}  // namespace trainyard::core
