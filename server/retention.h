// Finds jobs that ended long ago, so that the server does not keep everything for ever.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/ids.h"
#include "server/core/yard/yard.h"

namespace trainyard {

// Jobs with this tag stay until somebody deletes them.
inline constexpr absl::string_view kKeepTag = "keep";

// Returns at most `max` jobs that ended before the time `before_us`, the lowest numbers first. Jobs
// that DeleteJob would refuse, because others wait for their success, are left out.
std::vector<JobId> FindEndedBefore(const core::Yard& yard, int64_t before_us, size_t max);

}  // namespace trainyard
