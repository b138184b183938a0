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
  SpecFields fields;
  std::string text;
};

// Tries these changes in order: fewer devices, another type, mixed types, less memory, no labels, a
// time limit short enough to be lent devices, a larger priority. Changes that would be refused are
// passed over (PassInput::accept). Returns none for a job that is held, or that fits as it is.
std::optional<Change> FindChange(const PassInput& input, const PassState& state,
                                 const QueuedJob& job);

}  // namespace trainyard::core
