// Steps of a sweep that several searches have in common. Each function returns a decision, or
// nothing if there is no reason for it. All but the first presume a free place.
#pragma once

#include <optional>

#include "server/core/sweeping/state.h"

namespace trainyard::core::sweeping {

Entry Continue(int32_t trial, int32_t rung);

// Lets the first trial go on that was interrupted on its way to its rung.
std::optional<Entry> ResumeInterrupted(const State& state);
// Restarts the first trial that has failed and may run again.
std::optional<Entry> RestartFailed(const State& state);
std::optional<Entry> StartNext(const State& state);

}  // namespace trainyard::core::sweeping
