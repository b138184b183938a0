// Defines the identity of a worker, which does not change while its daemon runs.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace trainyard::agent {

// Returns the identity of the state directory. It is made at its first use and kept forever.
absl::StatusOr<std::string> ReadOrMakeUid(const std::string& state_dir);

// Parses labels of the form key=value. Returns INVALID_ARGUMENT if one is given twice, or if there
// are too many.
absl::StatusOr<std::map<std::string, std::string>> ParseWorkerLabels(
    const std::vector<std::string>& texts);

}  // namespace trainyard::agent
