// Decides for population based training.
#pragma once

#include <optional>

#include "server/core/sweeping/state.h"

namespace trainyard::core::sweeping {

// Returns the next decision of a sweep that goes on: see Decide.
std::optional<Entry> DecidePbt(const State& state);

}  // namespace trainyard::core::sweeping
