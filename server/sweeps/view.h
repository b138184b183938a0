// Shows sweeps to those who ask for them.
#pragma once

#include <cstdint>
#include <vector>

#include "server/runtime/board.h"
#include "server/sweeps/sweep.h"
#include "trainyard/v1/sweep_service.pb.h"

namespace trainyard::sweeps {

// Returns a sweep as the API shows it. Without trials, it has the `sweep` of its spec and the best
// trial alone.
v1::Sweep ViewOf(const Sweep& sweep, const runtime::Board& board, int64_t now_us, bool with_trials);

// Adds a sentence for each entry of the record whose sequence is greater than `after`.
void AddDecisions(const std::vector<core::sweeping::Entry>& entries, int64_t after,
                  v1::Sweep& shown);

}  // namespace trainyard::sweeps
