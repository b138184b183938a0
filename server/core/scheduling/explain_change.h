// Finds the smallest change of a job that would start it now.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/core/scheduling/pass.h"

namespace trainyard::core {

struct Change {
  // Pairs of a path in the spec and a value.
  std::vector<std::pair<std::string, std::string>> fields;
  std::string text;
};

// Tries these changes in order: fewer devices, another type, mixed types, less memory, no labels, a
// time limit short enough to be lent devices, a larger priority. Returns none for a job that is
// held, or that fits as it is.
std::optional<Change> FindChange(const PassInput& input, const PassState& state,
                                 const QueuedJob& job);

}  // namespace trainyard::core
