// Computes deadlines of workers and attempts. Timers are data: a deadline is computed from the
// records and the contacts whenever these have changed, and nothing has to be set or cancelled by
// hand.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/core/yard/state.h"

namespace trainyard::core {

// Sets `earliest` to `deadline` if that comes sooner.
void TakeEarlier(std::optional<int64_t>& earliest, std::optional<int64_t> deadline);

// Computes the deadlines of touched workers, and of the attempts on them.
void RefreshTimers(YardState& state);
// Does everything that is due.
void FireTimers(YardState& state, Now now);
// Returns the earliest deadline.
std::optional<int64_t> NextTimer(const YardState& state);

// Returns a sentence for each worker of a live attempt that is out of contact.
std::vector<std::string> ContactRemarks(const YardState& state, AttemptId attempt);

// Returns true if an attempt may still hold devices of the worker.
bool HasHoldingParts(const YardState& state, const std::string& worker);

}  // namespace trainyard::core
