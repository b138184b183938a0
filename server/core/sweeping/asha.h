// Decides for asynchronous successive halving.
#pragma once

#include <optional>

#include "server/core/sweeping/state.h"

namespace trainyard::core::sweeping {

// Returns the next decision of a sweep that goes on: see Decide.
std::optional<Entry> DecideAsha(const State& state);

}  // namespace trainyard::core::sweeping
