// Who a worker is: what does not change while its daemon runs.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace trainyard::agent {

// The identity of the state directory: it is made at its first use, and kept for ever.
absl::StatusOr<std::string> ReadOrMakeUid(const std::string& state_dir);

// Labels as key=value. INVALID_ARGUMENT where one is given twice, or there are too many.
absl::StatusOr<std::map<std::string, std::string>> ParseWorkerLabels(
    const std::vector<std::string>& texts);

}  // namespace trainyard::agent
