// The smallest change of a job that would start it now.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/core/scheduling/pass.h"

namespace trainyard::core {

struct Change {
  std::vector<std::pair<std::string, std::string>> fields;  // path in the spec, value
  std::string text;
};

// Tries, in this order: fewer devices, another type, mixed types, less memory, no labels, a time
// limit short enough to be lent devices, a larger priority. Finds none for a job that is held, or
// that fits as it is.
std::optional<Change> FindChange(const PassInput& input, const PassState& state,
                                 const QueuedJob& job);

}  // namespace trainyard::core
